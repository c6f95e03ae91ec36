"""Whether a reply promises that the agent will come back.

A reply is read sentence by sentence:
1. Decoration goes (Markdown, accents, capitals, curly quotes), and so do phrases that only sound like a denial or an offer
   ("no problem", "as soon as I can").
2. A promise is somebody of the house who will come back, remind, tell, or check and report (ACTIONS), or something that is
   said to be booked (BOOKINGS).
3. It is excused when its own clause denies or only offers it, when the sentence hangs it on the customer's word ("if you
   like"), when it is what the sentence asks, and, for a booking, when its clause tells of a cancellation or of the past.

An excuse ends with its sentence, most with their clause, so an offer never covers the promise beside it. This reads words, not
minds, and errs towards seeing a promise: the price of that is one more question to the model.

Every pattern begins at a word and has only bounded gaps, and only a bounded stretch around a match is read again, so the time
grows with the text and no faster.
"""

import re
import unicodedata
from collections.abc import Iterator

from agent.language import fold

# One pattern a line, over folded text (small letters, no accents, one space between words). A name in angle brackets stands for
# its pattern in NAMES, and every bracket groups without capturing.

NAMES = {
    "gap": r"[^.!?]{0,80}",
    "near": r"[^.!?,;:]{0,40}",
    "start": r"(?:^|(?<=[^\w\s'] )|(?<=[,;:!])|(?<=\band )|(?<=\bbut )|(?<=\by )|(?<=\be ))",
    # English
    "I will": (
        r"\b(i|we)('ll| will| shall|'m going to| am going to|'re going to| are going to)"
        r"( (now|also|then|just|still|soon|always|surely|definitely|certainly|absolutely|gladly|happily|personally|immediately"
        r"|of course|be sure to|remember to|make sure to|make sure i|try to|do my best to|go ahead and|make a note to|be happy to"
        r"|be glad to|check and|be here to)){0,3}"
    ),
    "I have": r"\b(i|we)('ve| have)?( (just|already|now|also|successfully|gone ahead and)){0,2}",
    "is": r"( is| are| was| were|'s|'re)( (now|all|already|just|also))?",
    "later": (
        r"\b(tomorrow|tonight|later|soon|shortly|afterwards|as soon as|once (it|i|we|they|that|this|there|the)"
        r"|when (i|we|it|it's|they|there|that|this|the|ready|done)|by (noon|then|\d|[a-z]{3,6}day|tomorrow)|the moment"
        r"|next (week|month|[a-z]{3,6}day)|in (a|an|half|two|three|five|ten|\d+|the next) ?(few |couple of |an )?"
        r"(moment|second|minute|hour|day|week|month|bit|while)s?|on [a-z]{3,6}day|at (\d|noon|midnight)|first thing"
        r"|if (anything|something|it|that|there|they))\b"
    ),
    "alarm": r"(reminder|alarm|alert|follow-up|follow up|callback|check-in|notification)",
    # Spanish
    "te": r"\b(te|le|les|os|se)( lo| la| los| las)?",
    "ahora o luego": (
        r"((?<!la )\bmanana\b|\b(luego|mas tarde|despues|pronto|enseguida|ahorita|hoy mismo|dentro de|en cuanto|apenas|tan pronto"
        r"|en (un|una|unos|unas|media|dos|tres|cinco|diez|breve|\d+)|cuando (tenga|este|sepa|termine|llegue|haya|lo|la|se|me|salga)"
        r"|a las? \d|al mediodia|el (proximo|lunes|martes|miercoles|jueves|viernes|sabado|domingo)|la proxima"
        r"|si (cambia|hay|algo|baja|sube))\b)"
    ),
    "aviso": r"(recordatorio|aviso|alarma|alerta|notificacion|seguimiento)",
    "hecho": r"(programad|agendad|reservad|anotad|fijad|cread|configurad|guardad|puest|registrad|activad|planificad)[oa]s?\b",
    # Portuguese
    "depois": (
        r"\b(amanha|depois|mais tarde|logo|em breve|daqui a|dentro de|assim que|em (um|uma|uns|alguns|meia|dois|cinco|dez|\d+)"
        r"|quando (tiver|souber|estiver|sair|chegar|houver|ficar|terminar)|as \d|ao meio-dia|na (proxima|segunda|terca|quarta"
        r"|quinta|sexta)|no (sabado|domingo)|se (mudar|houver|algo|baixar))\b"
    ),
    "lembrete": r"(lembrete|aviso|alarme|alerta|notificacao)",
    "feito": r"(agendad|programad|marcad|reservad|criad|configurad|definid|anotad|registrad)[oa]s?\b",
}

ACTIONS = r"""
<I will> (remind|notify|alert|nudge|ping|investigate|monitor|follow up|reach out|find out|look into|watch for)\b
<I will> (get|come|circle|check|report|be|write|call) back\b
<I will> (get in touch|be in touch|return (to you|with|here)|check (with|in)\b|let (you|them|him|her) know|keep (you|an eye))
<I will> (contact|update|text|message|email|e-mail|phone|ring|call|write|write to|wake) you\b
<I will> (schedule|book|queue)\b
<I will> (give|shoot|drop|send|leave) you (a|an) (\w+ )?(heads-up|heads up|line|message|note|word|nudge|shout|ring|call|ping|text|reminder)\b
<I will> \w+<gap>\b(and|then) (get back|circle back|come back|report back|follow up|let you know|tell you|update you|message you)\b
\b(moment|minute|minutes|second|sec|bit|while)<gap><I will> (tell|have|give|send|be)\b
<I will> (set|set up|create|add|put|make|place)\b<near>\b(<alarm>|calendar|agenda|diary)
<I will> (set|put) (it|that|this)( up| down)? (for|at)\b
<I will> (check|look|review|verify|ask|see|search|find|go)\b<gap>\b(and|then) (i'll )?(tell|let|send|give|report|get back|come back|write|message|inform|update|notify)\b
<I will> (send|tell|give|show|share|have|bring|answer|reply|respond|check|look|review|verify|confirm|ask|try|see|say|post|write|inform|forward|do|pass|speak|talk|be here)\b<gap><later>
\blet me (get back to you|(check|look|find out|ask|confirm|verify|see)\b<gap>\b(and|then) (i'll )?(get back|come back|tell|let you|report|update|write|message))
\b(count on (me|us)|you can be sure|rest assured)<near>\b(remind|notify|let you know|get back)
\b(i|we) (promise|swear|won't forget|will not forget|will never forget) to (remind|notify|let|tell|get|come|write|call|check|message)\b
\b(i'm|i am|we're|we are) (already )?(on it|working on it|looking into|scheduling|booking|setting (up )?(a|the|your) reminder)\b
\b(you'll|you will|you're going to|you are going to) be (notified|reminded|alerted)\b
\b(you'll|you will|you're going to|expect|expect to) (get |receive |see |have |hear )?(back )?(a |an |the |your |another |my |one )?(<alarm>|((message|answer|reply|update|news) )?from (me|us)\b|(message|answer|reply|update)<near><later>)
\b(answer|result|reply|reminder|update)s? (will (come|arrive|follow|be (here|sent|delivered|posted))|comes (here|as soon|when|once))
<start>will (remind|notify|ping|message|update|get back|let you know)\b
<start>(reminding|notifying) you\b<gap><later>
\bi (remind you|let you know|notify you|get back to you)\b(?! that)<gap><later>

<te> (avisare|avisaremos|recordare|recordaremos|notificare|notificaremos|informare|informaremos|contactare|contactaremos|escribire|escribiremos|llamare|llamaremos|respondere|responderemos|contestare|confirmare|mantendre|mantendremos|mantengo (al|inform))\b
<te> (aviso|avisamos|recuerdo|recordamos|notifico|notificamos)\b(?!:| que\b| de que\b)
\b(te|se) lo (recuerdo|recordamos|recordare)\b
<te> (hare (saber|llegar)|estare (avisando|recordando|informando|escribiendo|contactando))\b
<te> (digo|cuento|escribo|llamo|contacto|contesto|respondo|confirmo|informo|paso|envio|mando|doy|busco|dire|contare|enviare|mandare|pasare|dare|tendre|traere)\b<gap><ahora o luego>
<ahora o luego><gap><te> (digo|cuento|escribo|llamo|contacto|contesto|respondo|confirmo|informo|paso|envio|mando|doy|busco|dire|contare|enviare|mandare|pasare|dare|tendre|traere)\b
\bse (te|le|les) (avisara|notificara|recordara|informara|contactara)\b
\b((te|le|les|os|se lo) )?(voy|vamos) a (avisar|recordar|notificar|contactar|programar|agendar|averiguar|investigar|estar pendiente|mantener)
\b((te|le|les|os) )?(voy|vamos) a (escribir|llamar|informar|responder|decir|contar|enviar|revisar|verificar|consultar|comprobar|confirmar|preguntar)\w*<gap>(<ahora o luego>|\by (te|le|les|os) )
\b(voy|vamos) a (poner|crear|dejar|configurar|hacer)\w*<near>\b(<aviso>|<hecho>)
\b(vuelvo|regreso|volvere|regresare) (con|en|pronto|enseguida|luego|mas tarde|manana|cuando|apenas|contigo|aqui|el (lunes|martes|miercoles|jueves|viernes|sabado|domingo)|a (escribir|contactar|llamar|hablar|responder|avisar))
\b(ya|ahora|enseguida) (vuelvo|regreso)\b
\b(volveremos|volvemos|regresamos) (con (la|una|tu|su) |a (escribir|contactar|llamar|avisar))
\b(averiguo|reviso|verifico|consulto|investigo|busco|compruebo|miro|pregunto|veo|dejame|permiteme|dejeme|permitame)\b<gap>\by (ya )?(te|le|les|os) (lo )?(digo|cuento|aviso|confirmo|informo|escribo|paso|respondo|llamo|contesto)
\b(lo|la) (averiguo|investigo|agendo|programo)\b
<te> (agendo|programo|dejo (todo )?<hecho>|(pongo|creo|configuro|programo)<near>\b<aviso>)
\b(lo|la) dejo (ya )?<hecho>
\b(programare|agendare|reservare|programaremos|agendaremos)\b
\b(pondre|creare|configurare|hare|dejare)\b<near>\b(<aviso>|<hecho>)
\b(ya )?estoy en (ello|eso)\b|\b(ya )?me pongo (con|en) (ello|eso)\b|\bme encargo de (avisar|recordar)
\bme (pondre en contacto|comunicare)|\bnos (pondremos en contacto|comunicaremos)|\bme (pongo en contacto|comunico)\b<gap><ahora o luego>
\b(recibiras|recibira|tendras|tendra|(te|le) llegara|veras)\b<near>\b(<aviso>|noticias (mias|nuestras)|respuesta)
\b(seras|sera) (notificad|avisad|contactad)[oa]
\brespuesta (te )?(llega|llegara|aparecera) (aqui|en cuanto|cuando|apenas|por)
\bno (me )?(olvidare|olvidaremos|voy a olvidar)\w* (de )?(avisar|recordar|escribir)|\bno se me olvida(ra)? (avisar|recordar)
\b(prometo|quedo en|me comprometo a) (avisar|recordar|escribir|volver|llamar|notificar)

\b(te|lhe|lhes) (avisarei|avisaremos|lembrarei|lembraremos|notificarei|retorno|retornarei|informarei|escreverei|ligarei|chamarei|responderei|contatarei|mantenho)\b
\b(te|lhe|lhes) (lembro|aviso|notifico)\b(?!:| que\b| de que\b)
\b(avisarei|lembrarei|notificarei|retornarei|avisaremos|lembraremos|retornaremos|agendarei|programarei)\b
\b(eu )?(aviso|lembro|notifico|manterei|mantenho) (voce|voces|o senhor|a senhora|a voce)\b(?! que| de que)
\b(aviso|lembro|notifico)-(te|lhe|o|a)\b(?! que| de que)
\b(te|lhe|lhes) (digo|falo|conto|respondo|mando|envio|passo|chamo|ligo|escrevo|informo|confirmo|trago)\b<gap><depois>
<depois><gap>\b(te|lhe|lhes) (digo|falo|conto|respondo|mando|envio|passo|chamo|ligo|escrevo|informo|confirmo|trago)\b
\b(vou|vamos|irei|iremos)( ja| tambem| te| lhe| lhes| sim| com certeza){0,3} (avisar|avisa-|lembrar|lembra-|notificar|notifica-|retornar|agendar|programar|averiguar|investigar|acompanhar|monitorar|entrar em contato|manter)
\b(vou|vamos|irei)( te| lhe)? (escrever|ligar|informar|responder|dizer|enviar|mandar|verificar|checar|conferir|consultar|confirmar|perguntar|ver|pesquisar)\b<gap>(<depois>|\be (ja )?(te|lhe|volto|retorno|aviso) )
\b(vou|irei) (criar|colocar|deixar|configurar|fazer|por|marcar|definir)\b<near>\b(<lembrete>|<feito>)
\b(criarei|colocarei|marcarei|deixarei)\b<near>\b(<lembrete>|<feito>)
\b(volto|voltarei|retorno|retornaremos|voltaremos) (com|em|logo|ja|assim|quando|amanha|mais tarde|aqui|para te|a (te|falar|escrever|chamar|entrar)|na (segunda|terca|quarta|quinta|sexta))
\bja volto\b
\b(verifico|vejo|confiro|checo|consulto|pesquiso|descubro|pergunto|verificar|checar|conferir|consultar|pesquisar|descobrir|deixa eu|deixe-me|me deixe)\b<gap>\be (ja )?(te |lhe )?(aviso|digo|falo|conto|retorno|respondo|informo|volto|confirmo|passo|mando)\b
\b(entro|entrarei|entraremos) em contato\b
\b(te|lhe) (agendo|programo|deixo <feito>|(crio|coloco|marco|configuro)<near>\b<lembrete>)|\bdeixo <feito>
\b(ja )?estou (nisso|trabalhando nisso|cuidando disso|vendo isso|verificando isso)\b
\bvoce (vai )?(recebera|receber|tera|ter)\b<near>\b(<lembrete>|resposta|noticias minhas)
\b(voce|o senhor|a senhora) (sera|vai ser) (avisad|notificad|lembrad|contatad)[oa]
\bresposta (chega|chegara|vem|vira|aparece|vai chegar) (aqui|assim|quando|por)
\bnao (vou |me )?(esquecer|esquecerei|esqueco) de (te |lhe )?(avisar|lembrar)
\b(prometo|fico de|me comprometo a) (te |lhe )?(avisar|lembrar|escrever|voltar|ligar|retornar|notificar)
"""

BOOKINGS = r"""
<I have> (scheduled|booked|arranged|queued)\b
<I have> (set|set up|created|added|saved|made|put|placed)\b<near>\b(<alarm>|calendar|agenda|diary)
<I have> (set|noted|marked|put|got) (it|that|this)( up| down)? (for|at)\b
\b(has|have)( now| just| already| also)? been( now| successfully| just)? (scheduled|booked|set|set up|created|queued|arranged)\b
\b(<alarm>|call|check|message|task|meeting|appointment)\b<near><is> (scheduled|booked|queued|set|set up|created|saved|in place|confirmed for)\b(?! of)
\b(it|that|this|everything|all)<is> (scheduled|booked|queued|set (for|up for|to remind)|set\b(?=$|[.!,]))
\b<alarm> (is |now )?(set|scheduled|booked|created|saved|added|confirmed)\b(?=$|[.!,;:]| for\b| at\b| on\b| in\b| to\b| and\b)
\b(you're|you are|it's|that's|we're)( now| already)? (all set|booked|scheduled|set|down) (for|at|to be reminded)\b
<I have> (got )?you down for\b|<I have> made a note to (remind|notify|let|get|check|write|message)\b
\b(it's|it is|that's|that is) (on|in) (my|the|your) (calendar|agenda|diary|schedule)\b
<start>((done|ok|okay|great|perfect|sure|got it),? )?(all set|scheduled|booked|noted|set) (for|at|on) (\d|noon|tomorrow|today|tonight|[a-z]{3,6}day|next|the)
<start>(all )?(scheduled|booked)(?= ?$| ?[^\w ]| tomorrow\b| (a|an|another|your|it|that)\b)
\bconsider it (scheduled|booked|set|done)\b

\b(queda|quedan|quedo|quedaron|quedara|ha quedado|han quedado)( \w+){0,4} <hecho>
\b(ha|han) sido <hecho>
\b(fue|fueron) (programad|agendad|reservad|cread)[oa]s?\b
\b(<aviso>|llamada|tarea|mensaje|cita|todo|ya|listo|lo|la)( \w+){0,3} (esta|estan|tienes|tiene)( ya)? <hecho>
<start>((ya )?(esta|tienes)( todo| ya)?) (programad|agendad|reservad|fijad)[oa]\b
\b<aviso>( \w+){0,3} (<hecho>|listo\b)
\b(he|hemos)( ya)? (programado|agendado|reservado|planificado)\b
\b(he|hemos)( ya)? (puesto|creado|anotado|fijado|dejado|configurado|guardado|registrado)\b<near>\b(<aviso>|<hecho>|para (el|manana|las))
\bya (quedo|quedaron|esta|estan) (el|la|los|las|tu|tus|su|sus) <aviso>
\bya (te|le|les|os|lo|la|te lo|te la|se lo|se la) (agende|programe|reserve|anote|apunte|puse)\b
<start>((listo|hecho|ok|vale|perfecto|claro|bueno),? )?(todo )?(programad|agendad|reservad|anotad)[oa](?= ?$| ?[^\w ]| para\b| a las?\b| el\b| manana\b| hoy\b| en\b)

\b(ficou|ficaram|fica|ficam|ficara|foi|foram)( \w+){0,3} <feito>
\b(<lembrete>|ligacao|tarefa|mensagem|consulta|reuniao|tudo|ja)( \w+){0,3} esta( ja)? <feito>
<start>(ja )?esta( tudo| ja)? (agendad|programad|marcad|reservad)[oa]\b
\b<lembrete>( \w+){0,3} (<feito>|pronto\b|salvo\b)
\b(agendei|programei|reservei)\b
\b(marquei|criei|coloquei|anotei|configurei|deixei|salvei|defini|registrei)\b<near>\b(<lembrete>|<feito>|para (o|as|amanha))
<start>((pronto|feito|ok|certo|perfeito|claro|beleza),? )?(tudo )?(agendad|programad|marcad|reservad|anotad)[oa](?= ?$| ?[^\w ]| para\b| as\b| amanha\b| hoje\b| em\b)
"""

# Only the accent tells "I have booked" from "book!" and from "that I book", so these are read before folding.
BOOKINGS_BY_ACCENT = r"""
\b(agendé|programé|reservé)\b
\b(anoté|apunté|creé|dejé|configuré|registré|guardé|activé|puse|fijé)\b<near>\b(<aviso>|<hecho>|para (el|mañana|las))
"""

SOUNDS_LIKE_A_DENIAL = r"""
\b(no problem|no worries|not a problem|don't worry|no doubt|not to worry|as soon as i can|whenever i can|why not)\b
\b(no hay problema|sin problemas?|no te preocupes|no se preocupe|no dudes|sin duda|no faltaba mas|como no|sin falta)\b
\b(sem problemas?|nao tem problema|nao se preocupe|sem duvida|nao ha problema|sem falta)\b
"""

DENIED_ACTION = r"""
\b(no|nunca|nao|tampoco|jamas|jamais|never|not)( me| eu)? $
\b(don't|do not|doesn't|does not|can't|cannot|couldn't|not|never|unable to) (think|believe|promise|guarantee|mean|say|saying|sure|know if)\b
\bno (puedo|podemos|podria) (prometer|garantizar|asegurar)|\bno (significa|creo|prometo|garantizo)\b
\bnao (posso|podemos) (prometer|garantir)|\bnao (significa|acho|prometo|garanto)\b
"""

DENIED_BOOKING = r"""
n't\b|\b(not|cannot|never|no|nothing|none|neither|nobody|unable|without)\b
\b(nunca|nada|ningun|ninguna|ninguno|sin|tampoco|jamas|imposible)\b
\b(nao|nenhum|nenhuma|sem|tampouco|jamais|impossivel)\b
"""

OFFERED = r"""
\b(do you (want|wish|need)|want me to|would you (like|prefer|want)|should|shall|may|can|could|might|whether) (me|i|we|it|you)\b
\b(i|we) (can|could|may|might|would|am able to|are able to|'d)\b|\bdo you (want|prefer|need)\b|\bwant me to\b|\bwould you (like|prefer)\b
\b(puedo|podria|podemos|podriamos|quieres que|quiere que|te gustaria|le gustaria|deseas|desea|prefieres|prefiere|te parece|le parece)\b
\b(posso|poderia|podemos|quer que|gostaria|deseja|prefere|caso)\b
"""

UP_TO_THE_CUSTOMER = r"""
\bif (you('d| would| do| ever)? ?(like|want|wish|prefer|tell|give|send|share|say|let|confirm|need|provide|agree|ask|choose|pick)|that works|so|that's ok)\b
\b(once|as soon as|when|whenever|after) you('ve| have|'re| are)?( have)? ?(tell|told|give|given|send|sent|share|say|said|confirm|confirmed|choose|decide|know|reply|ready)\b
\b(tell|give|send) me (when|what (time|day)|which|the (time|day|date)|a (time|day|date)|your|and)\b|\b(just )?say (when|the word)\b|\blet me know (when|what time|which|the)\b
\bsi (lo |asi lo )?(quieres|quiere|quieren|prefieres|prefiere|deseas|desea|gustas|gusta|necesitas|necesita|te parece|le parece|estas de acuerdo)\b
\b(si|cuando|en cuanto|una vez que|despues de que) (usted )?me (lo )?(dices|dice|digas|diga|das|da|des|de|indicas|indica|indiques|indique|confirmas|confirmes|pasas|pases|envias|envies|cuentas|cuentes|respondas)\b
\b(dime|digame|indicame|indiqueme|pasame|dame|deme|cuentame) (cuando|a que hora|que (dia|hora|fecha)|la (hora|fecha)|el dia|una (hora|fecha)|un dia|y)\b
\bcuando (lo )?(quieras|quiera|gustes|guste|desees|prefieras)\b
\b(solo|basta con que|solo tienes que) (dime|digas|me digas|decirme|me lo digas)\b
\bse (voce )?(quiser|preferir|desejar|precisar|puder|concordar|me (disser|der|informar|passar|confirmar|enviar))\b
\b(quando|assim que|depois que) (voce )?(quiser|me (disser|der|confirmar|informar|passar|enviar|responder))\b
\b(me (diga|diz|da|de|passe|passa|informe|fale|fala)|diga-me|informe-me) (quando|que (horas|dia)|a que horas|a (hora|data)|o (horario|dia)|um (horario|dia)|uma (hora|data)|e)\b
\b(basta|e so) (me )?(dizer|falar|avisar)\b
"""

NO_LONGER = r"""
\b(cancel\w*|removed|deleted|no longer|undone|dropped|elimin\w+|borr(e|ado|amos)|anul\w+|ya no|exclui\w*|apag(uei|ado)|removi\w*)\b
\b(yesterday|last (week|month|year|night|time|[a-z]{3,6}day)|ago|earlier|previously|had been|used to)\b
\b(ayer|anoche|(semana|mes|ano) pasad[oa]|hace (un|una|dos|tres|\d+)|anteriormente|el [a-z]{5,9} pasado)\b
\b(ontem|semana passada|mes passado|ano passado|ha (um|uma|dois|\d+) [a-z]+|anteriormente|[a-z]+ passad[oa])\b
"""


def _compile(table: str) -> re.Pattern[str]:
    lines = [line for line in table.splitlines() if line]
    pattern = "|".join(lines)
    while any(f"<{name}>" in pattern for name in NAMES):
        for name, meaning in NAMES.items():
            pattern = pattern.replace(f"<{name}>", f"(?:{meaning})")
    return re.compile(re.sub(r"(?<!\\)\((?!\?)", "(?:", pattern))


_ACTIONS, _BOOKINGS, _BOOKINGS_BY_ACCENT = _compile(ACTIONS), _compile(BOOKINGS), _compile(BOOKINGS_BY_ACCENT)
_DENIED_ACTION, _DENIED_BOOKING = _compile(DENIED_ACTION), _compile(DENIED_BOOKING)
_OFFERED, _UP_TO_THE_CUSTOMER, _NO_LONGER = _compile(OFFERED), _compile(UP_TO_THE_CUSTOMER), _compile(NO_LONGER)
_SOUNDS_LIKE_A_DENIAL = _compile(SOUNDS_LIKE_A_DENIAL)

_DECORATION = re.compile(r"[*_~`#>\u200b-\u200f\u2060\ufeff]+|^ ?(?:[-+•]|\d{1,3}[.)]) ", re.MULTILINE)
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "«": '"', "»": '"', "\u00a0": " ", "\u202f": " "})
_HALF_DAY = re.compile(r"\b([ap])\. ?m\.", re.IGNORECASE)
_SOFT_BREAK = re.compile(r"(?<![.!?:;\s])[ \t]*\n(?=[a-zà-ÿ])")
_SPACES = re.compile(r"[^\S\n]+")
_SENTENCE_END = re.compile(r"[!?]+|[.…;]+(?=[\s\"')\]]|$)|\n|(?=[¿¡])")
_CLAUSE_END = re.compile(
    r"[,:()–—•|\"¡¿]| - | (?:and|but|so|then|y|e|pero|mas|porem|asi que|entao|aunque|because|porque) |[\u2190-\U0010ffff]"
)
_COMMA = re.compile(r"[,:()–—]| - ")

_REACH = 240
"""How many characters before and after a promise are read for an excuse."""


def promises_to_return(text: str, *, bookings_count: bool = True) -> bool:
    """Tell whether a reply, in English, Spanish or Portuguese, promises to come back or says that something is booked.

    Without `bookings_count` only what the house will do counts: where nothing can be booked, "it is booked" is a report.
    """
    return any(_promises(sentence, is_question, bookings_count) for sentence, is_question in _sentences(text))


def _sentences(text: str) -> Iterator[tuple[str, bool]]:
    plain = unicodedata.normalize("NFC", text).translate(_QUOTES)
    plain = _HALF_DAY.sub(r"\1m", _DECORATION.sub("", _SPACES.sub(" ", plain)))
    plain = _SOFT_BREAK.sub(" ", plain).lower()
    start = 0
    for end in _SENTENCE_END.finditer(plain):
        yield plain[start : end.start()].strip(), "?" in end.group()
        start = end.end()
    yield plain[start:].strip(), False


def _promises(spoken: str, is_question: bool, bookings_count: bool) -> bool:
    is_question_throughout = spoken.startswith("¿") or (is_question and bool(_OFFERED.match(spoken)))
    if not spoken or is_question_throughout:
        return False
    spoken = _SOUNDS_LIKE_A_DENIAL.sub(",", spoken)
    folded = _SOUNDS_LIKE_A_DENIAL.sub(",", fold(spoken))
    asked_from = _start_of_the_question(folded) if is_question else len(folded)
    return any(not _is_action_excused(folded, match, asked_from) for match in _ACTIONS.finditer(folded)) or any(
        not _is_booking_excused(said, match, asked_from)
        for said, pattern in ((folded, _BOOKINGS), (spoken, _BOOKINGS_BY_ACCENT))
        if bookings_count
        for match in pattern.finditer(said)
    )


def _start_of_the_question(sentence: str) -> int:
    """In "I'll remind you at five, is that right?" only the last clause is asked."""
    ends = [comma.end() for comma in _COMMA.finditer(sentence)]
    return ends[-1] if ends else 0


def _is_action_excused(sentence: str, match: re.Match[str], asked_from: int) -> bool:
    before = _clause_before(sentence, match.start())
    return (
        match.start() >= asked_from
        or bool(_DENIED_ACTION.search(before))
        or bool(_OFFERED.search(before))
        or _is_up_to_the_customer(sentence, match)
    )


def _is_booking_excused(sentence: str, match: re.Match[str], asked_from: int) -> bool:
    before = _clause_before(sentence, match.start())
    clause = before + match.group() + _clause_after(sentence, match.end())
    return (
        match.start() >= asked_from
        or bool(_DENIED_BOOKING.search(before + match.group()))
        or bool(_OFFERED.search(before))
        or bool(_NO_LONGER.search(clause))
        or _is_up_to_the_customer(sentence, match)
    )


def _is_up_to_the_customer(sentence: str, match: re.Match[str]) -> bool:
    """A condition counts anywhere before the promise, and after it as long as no comma comes between."""
    before = sentence[max(0, match.start() - _REACH) : match.start()]
    return bool(_UP_TO_THE_CUSTOMER.search(before + match.group() + _clause_after(sentence, match.end())))


def _clause_before(sentence: str, position: int) -> str:
    before = sentence[max(0, position - _REACH) : position]
    ends = [end.end() for end in _CLAUSE_END.finditer(before)]
    return before[ends[-1] :] if ends else before


def _clause_after(sentence: str, position: int) -> str:
    after = sentence[position : position + _REACH]
    end = _CLAUSE_END.search(after)
    return after[: end.start()] if end else after
