// The event stream in a test's hand: `await sayOnStream(name, content, id)` sends an event to the page once it listens.
(() => {
  const real = window.fetch;
  let opened;
  let stream = new Promise((resolve) => (opened = resolve));
  window.fetch = (address, options) => {
    if (!/\/stream\b/.test(String(address?.url ?? address))) return real(address, options);
    const body = new ReadableStream({
      start(controller) {
        options?.signal?.addEventListener("abort", () => controller.error(options.signal.reason));
        opened(controller);
        stream = Promise.resolve(controller);
      },
    });
    return Promise.resolve(new Response(body, { headers: { "Content-Type": "text/event-stream" } }));
  };
  window.sayOnStream = async (name, content, id) => {
    const lines = [...(id ? [`id: ${id}`] : []), `event: ${name}`, `data: ${JSON.stringify(content)}`];
    (await stream).enqueue(new TextEncoder().encode(`${lines.join("\n")}\n\n`));
  };
})();
