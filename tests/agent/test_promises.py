import subprocess
import sys
import unicodedata
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.promises import names, promises_to_return

PROMISES = """
I'll remind you tomorrow.
I will get back to you.
I'll let you know as soon as the price drops.
Your reminder is set for 5 pm.
I've scheduled that.
I have scheduled a follow-up for Tuesday.
Sure! I'll remind you tomorrow at 9.
I’ll remind you at noon.
**I'll remind you** tomorrow.
Okay, I **will** remind you on Monday.
- I'll check with the workshop and let you know
We'll notify you when your car is ready.
I'm going to remind you in two hours.
I'll definitely make sure to remind you.
I'll look into it and get back to you shortly.
Let me check and get back to you.
I'll have an answer for you by Friday.
I'll send you the quote tomorrow.
I will check the flight and tell you.
You'll be notified when it is ready.
You'll get a reminder at 9.
You will receive a message from me at noon.
You'll hear from me soon.
Every Monday at 9 you get a reminder.
Reminders are set for every weekday.
Cada lunes a las 9 te escribo.
Todo dia às 9h você recebe um lembrete.
I'm on it; the answer comes here as soon as it is ready.
I won't forget to remind you.
No problem, I'll remind you tomorrow.
No problem I'll remind you tomorrow.
Don't worry, your reminder is booked.
I can't check that right now, but I'll get back to you.
Do you want anything else? I'll remind you tomorrow.
I'll remind you tomorrow at 9, is that right?
I can remind you of things. I'll remind you at 5 p.m. then.
Done! Scheduled for tomorrow at 9.
Reminder set for 5 pm.
Your follow-up has been scheduled.
The reminder has now been booked.
It's scheduled for Monday.
That is booked.
Consider it scheduled.
You're all set for tomorrow at 9.
I've set a reminder for you.
I set up the reminder for 9 am.
I've added it to my calendar.
I've cancelled the old one and scheduled a new one for 5 pm.
Will remind you tomorrow!
I'll set a reminder for tomorrow.
I'll be back with the result.
I'll follow up next week.
I'll keep you posted.
I'll ping you at 6.
As soon as I can I'll let you know.
If anything changes I'll let you know.
If the price drops, I'll notify you.
I'll remind you at 5 if you haven't paid by then.
I'll remind⏎you tomorrow.

te aviso en un rato
Te lo recuerdo mañana.
Vuelvo con la respuesta.
Queda programado.
Ya te agendé el recordatorio.
te avisaré
Te recordaré mañana a las 9 que pagues el seguro.
te recuerdo mañana
No te preocupes, te aviso.
No hay problema, te lo recordaré.
Voy a recordártelo el lunes.
Te voy a avisar cuando esté listo.
No voy a olvidar avisarte.
Lo averiguo y te digo.
Reviso y te confirmo.
Déjame revisar y te aviso.
En cuanto lo sepa, te escribo.
Te escribo mañana.
Le notificaremos en cuanto llegue.
Os avisaremos pronto.
Se te notificará cuando esté.
Me pondré en contacto contigo.
Recibirás un recordatorio a las 9.
Estoy en ello; la respuesta llega aquí en cuanto esté lista.
Ha quedado agendado para el lunes.
Tu recordatorio está programado para mañana.
He programado el aviso.
¡Listo! Programado para mañana a las 9.
Listo, agendado.
Recordatorio creado.
Programé el recordatorio.
Te lo dejo programado.
Te agendo el recordatorio.
Programaré un aviso.
Te pongo un recordatorio a las 5.
Pondré un recordatorio.
Ya vuelvo.
No lo sé, pero te aviso mañana.
¿Algo más? Te aviso mañana.
Te aviso mañana a las 9, ¿vale?
Te aviso mañana a las 9, de acuerdo?
Puedo recordarte cosas. Te lo recuerdo a las 5.
Tu recordatorio ha sido agendado.
Quedo en avisarte el lunes.
**Te aviso** a las 5.
Si baja el precio, te aviso.

vou te lembrar
Eu te aviso.
Já agendei.
Retorno em breve com a resposta.
Vou te lembrar amanhã às 9h.
Vou lembrá-lo amanhã.
Te lembro amanhã.
Eu lembro você amanhã.
Avisarei assim que souber.
Não se preocupe, eu te aviso.
Sem problema, vou te avisar.
Verifico e te aviso.
Vou verificar e te retorno.
Vou verificar isso e aviso você.
Deixa eu ver e já te falo.
Assim que souber, te digo.
Te mando a resposta amanhã.
Entrarei em contato na segunda.
Você receberá um lembrete às 9h.
Você será avisado.
Estou nisso; a resposta chega aqui assim que estiver pronta.
Ficou agendado para segunda.
Seu lembrete está programado para amanhã.
Pronto, agendado para amanhã.
Lembrete criado.
Criei um lembrete para você.
Vou criar um lembrete.
Foi agendado para terça.
Volto com a resposta.
Já volto.
Não vou esquecer de te lembrar.
Fico de te avisar na segunda.
Não sei agora, mas te aviso amanhã.
Mais alguma coisa? Eu te lembro amanhã.
Eu te aviso amanhã, tudo bem?
Posso te ajudar com isso. Te lembro às 5.
Se o preço baixar, eu te aviso.
Agendarei o lembrete.

Got it — I'll message you here at 9:00 tomorrow.
Perfect! I've got you down for a reminder on Tuesday at 9.
I'll take care of it and get back to you.
Absolutely. I'll give you a heads-up an hour before.
I'll be in touch!
I'll check on that and circle back.
Hang tight, I'll have that for you in a few minutes.
I'll come back to you with the price.
Give me a moment and I'll tell you.
One moment while I check; I'll let you know.
Let me look into this and I'll update you.
I will remind you that your policy expires.
Your callback is booked for tomorrow at 10:00.
Reminder confirmed for 5 pm.
I have put a reminder in for you.
I've made a note to remind you tomorrow.
I'll reach out again on Monday.
Sit tight, I'm checking and will let you know.
I'll shoot you a message tomorrow.
I'll drop you a line on Friday.
Everything is set for tomorrow at 9.
I've booked you in for 5pm.
Okay. Reminder: I'll remind you tomorrow.
✅ Reminder scheduled: call Ana, tomorrow at 9:00
Your reminder for tomorrow at 9:00 has been created.
I'll remember to tell you tomorrow.
I will remind you to call Ana tomorrow at 9. Anything else?
You can count on me to remind you tomorrow.
Expect a message from me tomorrow at 9.
Talk soon — I'll write when I have news.
I'll return with an answer.
Perfecto, mañana a las 9 te escribo para recordarte.
Claro, te lo recordaré mañana.
Listo, quedó agendado tu recordatorio para mañana a las 9.
Agendado ✅
¡Hecho! Te mandaré un mensaje mañana a las 9.
Dame un momento, lo verifico y te cuento.
Ahora lo miro y te digo.
En un momento te confirmo.
Enseguida le informo.
Te estaré avisando.
Estaré pendiente y te avisaré.
Cuenta con ello, mañana te lo recuerdo.
Le haré saber cuando esté listo.
Te haré llegar la respuesta mañana.
Te contacto en cuanto tenga la información.
Ya quedó tu recordatorio.
Tu recordatorio ya está listo para mañana.
He guardado tu recordatorio para mañana a las 9.
Anotado: te aviso mañana.
Nos pondremos en contacto contigo pronto.
Combinado, te chamo amanhã.
Pode deixar que eu te lembro.
Pode deixar, te aviso assim que chegar.
Claro! Vou te mandar uma mensagem amanhã às 9h.
Vou verificar e já te respondo.
Só um momento que eu já te retorno.
Já deixei agendado.
Está marcado para amanhã às 9h.
Seu lembrete foi criado para amanhã.
Eu aviso quando estiver pronto.
Te dou um retorno amanhã.
Darei um retorno em breve.
Vou ficar de olho e te aviso.
Assim que tiver a resposta, eu volto aqui.
Lembrarei você amanhã.
Irei notificá-lo amanhã.
Anotei: amanhã às 9h te lembro.
"""

HONEST = """
Do you want me to remind you?
Would you like me to remind you tomorrow?
Shall I remind you tomorrow?
Should I let you know when it is ready?
Can I remind you at 9?
I can remind you if you tell me when.
I can remind you tomorrow.
I could get back to you tomorrow.
I'd be happy to remind you.
I'll remind you if you tell me when.
Tell me when and I'll remind you.
If you like, I'll remind you tomorrow.
If you tell me the time, I'll set a reminder.
Just say when, and I'll remind you.
Once you tell me the time, I'll book it.
I'll remind you tomorrow?
I cannot remind you.
I can't remind you of that.
I won't remind you.
I will not remind you.
I can't promise that I'll remind you.
I don't think I'll remind you.
I haven't scheduled anything.
I have not booked it.
There is nothing pending.
Nothing has been scheduled.
Nothing was booked.
No reminder was booked.
No reminder has been set.
Your reminder is not set.
You have no reminders booked.
I reminded you on Tuesday.
I let you know yesterday.
Your reminder was set for yesterday.
I had scheduled it.
Remember to bring your ID.
Don't forget to call Ana.
Let me know when you are ready.
Please remind me of your name.
Tell me when you arrive.
I have cancelled the reminder.
Your reminder has been cancelled.
I cancelled the reminder that was set for 5 pm.
The reminder set for 5 pm was cancelled.
I will explain how it works.
I'll help you with that.
I'll need your policy number.
I'll be happy to help.
We open at 9 tomorrow.
We are back on Monday.
Reminder: call Ana.
You asked me to: check the price.
You have 2 reminders: call Ana, and pay the insurance.
You can book a table on our page.
To set a reminder, tell me when.
How can I help you today?
The policy runs until Friday.
Thanks, noted!
The set of reminders is small.
I could not book that, and nothing was booked.

¿Quieres que te avise?
¿Quieres que te recuerde mañana?
¿Te aviso mañana?
¿Te parece si te aviso mañana, a las 9?
Te aviso mañana a las 9?
Si quieres, te aviso.
Si me dices la hora, te lo recuerdo.
Te aviso si me dices cuándo.
Dime a qué hora y te aviso.
Dime la fecha y lo agendo.
Puedo recordártelo mañana.
Podría avisarte mañana.
No puedo recordártelo.
No te aviso.
No te avisaré.
Nunca te avisaré.
No voy a avisarte.
No te voy a avisar.
No he programado nada.
No programé nada.
No quedó nada programado.
No hay nada programado.
No hay ningún recordatorio programado.
No tienes nada pendiente.
Nada ha quedado programado.
Avísame cuando estés listo.
avísame cuando llegues
Dime cuándo llegas.
Te avisé el martes.
Te lo recordé ayer.
Ayer te avisé.
Recuerda traer tu cédula.
Recuerda que abrimos a las 9.
Te recuerdo que la oficina cierra a las 5.
Te aviso que mañana cerramos.
He cancelado el recordatorio.
Cancelé el recordatorio que estaba programado.
Tu recordatorio fue cancelado.
El recordatorio programado para las 5 ya está cancelado.
Te explico cómo funciona.
Te ayudo con eso.
Te cuento cómo funciona.
Agende su cita en nuestra página.
Para que te agende una cita necesito tu nombre.
Recordatorio: llamar a Ana.
Tienes 2 recordatorios: llamar a Ana y pagar el seguro.
Volvemos el lunes a las 9.
¿En qué puedo ayudarte?
Abrimos mañana a las 9.
Necesito tu número de póliza.

Quer que eu te lembre?
Quer que eu te avise amanhã?
Te aviso amanhã?
Posso te lembrar amanhã.
Poderia te avisar amanhã.
Se quiser, eu te lembro.
Se você me disser a hora, eu te lembro.
Me diga a hora e eu te lembro.
Eu te aviso se você me disser quando.
Não posso te lembrar.
Não vou te lembrar.
Não te aviso.
Não agendei nada.
Nada foi agendado.
Não há nada pendente.
Nenhum lembrete foi agendado.
Não há nenhum lembrete programado.
Me avise quando estiver pronto.
Avise-me quando chegar.
Me diga quando chegar.
Te avisei na terça.
Eu te lembrei ontem.
Lembre-se de trazer o documento.
Te lembro que fechamos às 5.
Lembro que abrimos às 9.
Cancelei o lembrete.
Seu lembrete foi cancelado.
O lembrete agendado para as 5 foi cancelado.
Vou explicar como funciona.
Vou te ajudar com isso.
Lembrete: ligar para a Ana.
Você tem 2 lembretes: ligar para a Ana e pagar o seguro.
Como posso ajudar?
Abrimos amanhã às 9h.
Preciso do número da apólice.
Agende sua consulta na nossa página.

Sorry, I can't set reminders here.
I'm not able to remind you or get back to you later.
If you want me to remind you, tell me when.
When would you like me to remind you?
At what time should I remind you?
What time should the reminder be set for?
I'll need a time to set the reminder. When?
I have nothing scheduled for you.
You don't have any reminders scheduled.
There are no reminders set.
Your appointment is on Monday at 9.
I will now explain our three plans.
I'll walk you through it step by step.
I'm sorry, I'll try to be clearer.
I'll send you the details here: the plan costs 20 dollars.
I'll be glad to answer your questions.
You'll need to bring your ID tomorrow.
You'll receive your policy by post within 5 days.
The technician will call you tomorrow.
Your order will arrive tomorrow.
The shop will notify you by email.
You can tell me "remind me tomorrow at 9".
I can only book, list and cancel reminders.
That time is past: it is 14:03 in Bogota now. Nothing was booked.
The 9:00 reminder is cancelled, as you asked.
Which one should I cancel?
Your car has been ready since Tuesday.
We've been open since 1990.
Please set the time on your phone.
Set up takes 5 minutes.
You already had that reminder yesterday at 9.
I sent you the reminder yesterday.
Did I remind you yesterday?
I never said I'd call.
I'm happy to schedule it: which day?
Let me check. Your policy expires on 3 May.
I'll check: yes, it is in stock.
¿A qué hora quieres que te avise?
¿Cuándo te lo recuerdo?
¿Para cuándo lo agendo?
¿A qué hora te aviso?
Necesito una hora para poder recordártelo.
No tengo nada programado para ti.
No pude programarlo y nada quedó agendado.
Tu cita es el lunes a las 9.
Te paso los datos: el plan cuesta 20.
Le informo que el plan cuesta 20 dólares.
Te escribo para recordarte tu cita.
Recibirás tu póliza por correo mañana.
El técnico te llamará mañana.
Ya estaba agendado y lo cancelé.
Esa hora ya pasó: son las 14:03. No se programó nada.
Gracias por avisarme.
Recuérdame tu nombre, por favor.
Si necesitas un recordatorio, dime cuándo.
Solo dime cuándo y te lo recuerdo.
Cuando quieras te lo recuerdo.
A que horas quer que eu te lembre?
Quando devo te avisar?
Para quando agendo?
Preciso de uma hora para te lembrar.
Não consegui agendar e nada foi marcado.
Sua consulta é na segunda às 9h.
O técnico vai te ligar amanhã.
Te passo os dados: o plano custa 20.
Informo que o plano custa 20.
Esse horário já passou: são 14:03. Nada foi agendado.
É só me dizer quando e eu te lembro.
Obrigado por me avisar.
Lembre-me do seu nome, por favor.
Oi! Estou aqui para ajudar.
"""


def _lines(table: str) -> list[str]:
    return [line.replace("⏎", "\n") for line in table.splitlines() if line]


def _replies(kind: str) -> list[str]:
    """Return what a broker's, a clinic's or a shop's assistant might write, in the three languages."""
    files = sorted((Path(__file__).parent / "replies").glob(f"{kind}_*.txt"))
    return [line for file in files for line in file.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("reply", [*_lines(PROMISES), *_replies("promises")])
def test_a_promise_is_seen(reply: str) -> None:
    assert promises_to_return(reply)


@pytest.mark.parametrize("reply", [*_lines(HONEST), *_replies("innocent")])
def test_what_promises_nothing_is_let_through(reply: str) -> None:
    assert not promises_to_return(reply)


@given(st.sampled_from(_lines(HONEST)), st.sampled_from(_lines(PROMISES)), st.sampled_from([" ", "\n", "\n\n"]))
def test_an_honest_sentence_does_not_excuse_the_promise_after_it(honest: str, promise: str, gap: str) -> None:
    assert promises_to_return(honest + ("" if honest.endswith(("?", ".", "!")) else ".") + gap + promise)


@given(st.sampled_from(_lines(HONEST)), st.sampled_from(_lines(HONEST)))
def test_two_honest_sentences_make_no_promise_together(first: str, second: str) -> None:
    assert not promises_to_return(f"{first}\n\n{second}")


@given(
    st.sampled_from(_lines(PROMISES)), st.sampled_from(["**{}**", "_{}_", "> {}", "- {}", "## {}", "`{}`", "***{}***"])
)
def test_markdown_hides_no_promise(promise: str, decoration: str) -> None:
    assert promises_to_return(decoration.format(promise))


@given(st.sampled_from(_lines(PROMISES)), st.sampled_from(["NFC", "NFD"]), st.booleans())
def test_capitals_and_composed_accents_hide_no_promise(promise: str, form: Literal["NFC", "NFD"], loud: bool) -> None:
    written = unicodedata.normalize(form, promise)
    assert promises_to_return(written.upper() if loud else written)


@given(st.text(max_size=400))
def test_any_text_is_judged(text: str) -> None:
    assert promises_to_return(text) in {True, False}


def test_a_long_reply_of_nearly_promises_is_judged_in_linear_time() -> None:
    """A pattern that backtracks would take hours over these; the bound is generous, and in a process that can be ended."""
    program = """
from agent.promises import promises_to_return
for piece in ["a", "i'll check and ", ", ", "queda a b c d ", "reminder for a is was ", "te aviso si quieres ", "x\\t", "'",
              "can i i'll remind you if you like ", "i'll send our team ", "te digo un ", '"i', "our team y te ", "te llamará ",
              "dame y ", "i'm a and ", "reminder for our ", "as soon as i'll tell you: ", "i will now also then just still be sure to ", "in a moment i'll "]:
    promises_to_return(piece * (10_000 // len(piece)))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_where_nothing_can_be_booked_it_is_booked_is_a_report_and_i_will_is_still_a_promise() -> None:
    assert not promises_to_return("Your appointment is booked for 5 pm.", bookings_count=False)
    assert promises_to_return("I will remind you again tomorrow.", bookings_count=False)


NOW = datetime(2026, 11, 29, 9, tzinfo=UTC)
TOMORROW_AT_NINE = NOW + timedelta(days=1)


@pytest.mark.parametrize(
    ("reply", "about", "at"),
    [
        ("I'll remind you about the insurance.", "pay the Insurance", NOW + timedelta(days=3)),
        ("Te aviso de las pólizas.", "renovar la póliza", NOW + timedelta(days=3)),
        ("Te lembro do seguro.", "pagar o seguro", NOW + timedelta(days=3)),
        ("I'll remind Ana of it.", "call Ana", NOW + timedelta(days=3)),
        ("I'll remind you tomorrow at 9.", "call Ana", TOMORROW_AT_NINE),
        ("I'll remind you at 9:00.", "call Ana", TOMORROW_AT_NINE),
        ("I'll remind you at 9 am.", "call Ana", TOMORROW_AT_NINE),
        ("I'll remind you, 9 a.m. sharp.", "call Ana", TOMORROW_AT_NINE),
        ("I'll remind you at 17:30.", "call Ana", NOW + timedelta(hours=8.5)),
        ("I'll remind you at 5 pm.", "call Ana", NOW + timedelta(hours=8)),
        ("Te recuerdo a las 5 de la tarde.", "llamar a Ana", NOW + timedelta(hours=8)),
        ("Te lembro às 17h.", "ligar para Ana", NOW + timedelta(hours=8)),
        ("Te lembro hoje, 12 pm.", "ligar para Ana", NOW + timedelta(hours=3)),
        ("I'll remind you in 25 minutes.", "call Ana", NOW + timedelta(minutes=25)),
        ("I'm on it, I'll let you know.", "find the price", NOW),
        ("Te aviso en cuanto lo tenga.", "buscar el precio", NOW),
    ],
)
def test_a_promise_names_what_is_booked_by_a_word_of_it_or_by_its_time(reply: str, about: str, at: datetime) -> None:
    assert names(reply, about, at, NOW)


@pytest.mark.parametrize(
    ("reply", "about", "at"),
    [
        ("I'll call you with the quote.", "call Ana", TOMORROW_AT_NINE),
        ("Nuestro equipo te llamará.", "llamar a Ana", TOMORROW_AT_NINE),
        ("Te aviso mañana.", "avisar mañana del seguro", TOMORROW_AT_NINE),
        ("Eu te ligo.", "ligar para Ana", TOMORROW_AT_NINE),
        ("I'll remind you at 10.", "call Ana", TOMORROW_AT_NINE),
        ("I'll remind you at 9:30.", "call Ana", TOMORROW_AT_NINE),
        ("I'll remind you at 9 pm.", "call Ana", TOMORROW_AT_NINE),
        ("I'll send you all 9 quotes.", "call Ana", TOMORROW_AT_NINE),
        ("I'll let you know as soon as I can.", "call Ana", TOMORROW_AT_NINE),
        ("I'll remind you in 20 minutes.", "call Ana", NOW + timedelta(minutes=25)),
        ("I'll remind you.", "", NOW + timedelta(days=400)),
    ],
)
def test_a_promise_of_something_else_names_nothing_booked(reply: str, about: str, at: datetime) -> None:
    assert not names(reply, about, at, NOW)
