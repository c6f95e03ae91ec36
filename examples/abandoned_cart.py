"""An abandoned cart: its customer is reminded a day later, once, unless they have paid or want to hear nothing.

    cd examples
    VUELVO_APP=abandoned_cart:app vuelvo serve

and, as the shop's server, in another terminal in the same folder:

    KEY=$(vuelvo keys create --tenant demo)
    curl -X POST http://localhost:8000/v1/functions/abandoned-cart -H "Authorization: Bearer $KEY" \
        -H "Content-Type: application/json" -d '{"user": "ana", "cart": "c1", "to": "+34600000001", "event": "e1"}'
    vuelvo tasks list /send-followup

docs/functions.md explains all of it.
"""

from typing import Any

from pydantic import BaseModel

from app.context import Context
from app.functions import App

TEMPLATE = "HX00000000000000000000000000000001"
"""The number at Twilio of an approved template: "Hello {{1}}, your cart is waiting: {{2}}"."""


class Abandoned(BaseModel):
    """What the shop tells when somebody has left a cart."""

    user: str
    cart: str
    to: str
    """The customer's WhatsApp number."""
    event: str
    """The number of the shop's event: the same when the shop calls again."""


class FollowUp(BaseModel):
    """What the follow-up is given, a day later."""

    user: str
    cart: str
    to: str
    channel: str
    """A booked run comes by no channel, so it is told which."""


class Cart(BaseModel):
    """A cart that was paid."""

    user: str
    cart: str


class User(BaseModel):
    """Somebody who wants to hear nothing more."""

    user: str


class Shop:
    """Stands for the shop's own database."""

    def __init__(self) -> None:
        self.paid: set[str] = set()


def shop_app(shop: Shop) -> App:
    """Return the shop's functions."""
    app = App(time_zone="Europe/Madrid")

    @app.function("/abandoned-cart", input=Abandoned)
    async def abandoned_cart(given: Abandoned, ctx: Context) -> dict[str, Any]:
        booking = await ctx.schedule(
            in_="24h",
            path="/send-followup",
            payload={"user": given.user, "cart": given.cart, "to": given.to, "channel": "whatsapp"},
            key=f"cart:{given.user}:{given.cart}",
            subject=f"user_{given.user}",
            idempotency_key=f"abandoned-cart:{given.event}",
        )
        ctx.log("follow-up booked", id=booking.id, is_replay=booking.idempotent_replay)
        return {"booked": not booking.idempotent_replay, "id": booking.id}

    @app.function("/send-followup", input=FollowUp)
    async def send_followup(given: FollowUp, ctx: Context) -> Any:
        async def is_unpaid() -> bool:
            return given.cart not in shop.paid

        async def send() -> dict[str, bool]:
            link = f"https://shop.example/recover?c={given.cart}"
            await ctx.send_template(template=TEMPLATE, to=given.to, params=[given.user, link], channel=given.channel)
            return {"delivered": True}

        return await (
            ctx.guard.when("not paid yet", is_unpaid)
            .when("template approved", lambda: ctx.templates.for_(given.channel).has(TEMPLATE))
            .run(send)
        )

    @app.function("/cart-paid", input=Cart)
    async def cart_paid(given: Cart, ctx: Context) -> dict[str, int]:
        shop.paid.add(given.cart)
        done = await ctx.cancel_deferred(key=f"cart:{given.user}:{given.cart}")
        # One that is running by now is stopped by its first check, if at all.
        return {"cancelled": len(done.cancelled), "running": len(done.raced)}

    @app.function("/opt-out", input=User)
    async def opt_out(given: User, ctx: Context) -> dict[str, int]:
        done = await ctx.cancel_deferred(subject=f"user_{given.user}")
        return {"cancelled": len(done.cancelled), "running": len(done.raced)}

    return app


app = shop_app(Shop())
