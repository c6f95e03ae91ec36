"""Whether a reply promises that the agent will come back.

A reply is read sentence by sentence:
1. Decoration goes (Markdown, accents, capitals, curly quotes), what is quoted in the middle of a line, and phrases that only
   sound like a denial or an offer ("no problem", "as soon as I can").
2. A promise is somebody of the house who will come back, remind, or check and report (ACTIONS), who will do anything else at a
   time to come (DEFERRED with LATER), somebody else of the business who will (OTHERS with HOUSE: "our team", not "the
   courier"), or something that is said to be booked (BOOKINGS).
3. It is excused when its own clause denies or only offers it, when the sentence hangs it on the customer's word ("if you
   like"), when it is what the sentence asks, and, for a booking, when its clause tells of a cancellation or of the past.

An excuse ends with its sentence, most with their clause, so an offer never covers the promise beside it. This reads words, not
minds: it misses unusual wordings, and where it sees a promise that is none, the price is one more question to the model.

Every pattern begins at a word and has only bounded gaps, and only a bounded stretch around a match is read again, so the time
grows with the text and no faster.
"""

import re
import unicodedata
from collections.abc import Iterator
from datetime import datetime, timedelta

from agent.language import fold

# One pattern a line, over folded text (small letters, no accents, one space between words). A name in angle brackets stands for
# its pattern in NAMES, and every bracket groups without capturing.

NAMES = {
    "gap": r"[^.!?]{0,80}",
    "near": r"[^.!?,;:]{0,40}",
    "start": r"(?:^|(?<=[^\w\s'] )|(?<=[,;:!])|(?<=\band )|(?<=\bbut )|(?<=\by )|(?<=\be ))",
    "end": r"(?= ?$| ?[^\w ])",
    # English
    "will": r"('ll|ll| will| shall|'?m going to| am going to|'re going to| are going to| is going to|'?m gonna| gonna)",
    "I will": (
        r"\b((i|we)<will>|gonna)"
        r"( (now|also|then|just|still|soon|always|surely|definitely|certainly|absolutely|gladly|happily|personally|immediately"
        r"|of course|be sure to|remember to|make sure to|make sure i|try to|do my best to|go ahead and|make a note to|be happy to"
        r"|be glad to|check and|be here to)){0,3}"
    ),
    "I have": r"\b(i|we)('?ve| have)?( (just|already|now|also|successfully|gone ahead and)){0,2}",
    "I am": r"\b(i'?m|i am|we're|we are)( (already|now|currently|also|still)){0,2}",
    "is": r"( is| are| was| were|'s|'re)( (now|all|already|just|also))?",
    "back": r"(get|getting|come|coming|circle|circling|check|checking|report|reporting|be|write|call|calling|ring|go|message|text)( right)?( you)? back",
    "nudge": r"(heads-up|heads up|line|message|note|word|nudge|shout|ring|call|ping|text|buzz|reminder)",
    "news": r"(answer|reply|response|quote|figures|price|result|update|news|information|info|proposal|report)s?",
    "alarm": r"(reminder|alarm|alert|follow-up|follow up|callback|check-in|notification)",
    "when": r"(tomorrow|today|tonight|noon|midnight|\d|[a-z]{3,6}day|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|next (week|month)|this (morning|afternoon|evening))",
    "past": r"[^.!?,;:]{0,40}\b(ayer|anoche|ontem|pass?ad[oa])\b",
    # Spanish
    "te": r"\b(te|le|les|os|se|lo|la)( lo| la| los| las)?",
    "avisar": (
        r"(avisar|recordar|notificar|informar|contactar|escribir|llamar|responder|contestar|alertar|enviar|mandar|comunicar"
        r"|compartir|mantener)"
    ),
    "avisando": r"(avisando|recordando|informando|escribiendo|contactando|comunicando|llamando|enviando|mandando|contando)",
    "digo": (
        r"(digo|cuento|escribo|llamo|contacto|contesto|respondo|confirmo|informo|paso|envio|mando|busco|marco|hablo|(estoy|estamos) <avisando>|informamos"
        r"|escribimos|llamamos|contactamos|enviamos|mandamos|confirmamos|respondemos|decimos|contamos|pasamos|buscamos"
        r"|comparto|comento|averiguo|hago (saber|llegar)|tengo|ofrezco|traigo|dire|contare|pasare|tendre|traere|confirmare"
        r"|comentare|hare (saber|llegar)|marcare|hablare)"
    ),
    "aviso": r"(recordatorio|aviso|alarma|alerta|notificacion|seguimiento)",
    "hecho": (
        r"(programad|agendad|reservad|anotad|apuntad|fijad|cread|configurad|guardad|puest|registrad|activad|confirmad|planificad)[oa]s?\b"
    ),
    "cotizacion": r"(respuesta|cotizacion|informacion|presupuesto|precio|resultado|propuesta|noticias|datos?)",
    "not only words": (
        r"(?!(espero|recomiendo|sugiero|agradezco|puedo|quiero|deseo|aconsejo|explico|pido|ruego|invito|dejo|resumo|creo|entiendo"
        r"|debo|todo|solo|mismo|pero|como|luego|muestro|ofrezco|propongo|acho|recomendo|sugiro|quero|preciso|posso|entendo|mesmo"
        r"|agradeco|desejo|peco|tenho|aconselho|mostro|sinto|confirmo (su|tu|la|sua|seu|a) (cita|consulta|turno|horario|reserva))\b)"
    ),
    # Portuguese
    "falo": (
        r"(digo|falo|conto|respondo|mando|envio|passo|chamo|ligo|escrevo|informo|confirmo|trago|compartilho|retorno|procuro|estou <lembrando>|estou te <lembrando>"
        r"|informamos|enviamos|mandamos|ligamos|respondemos|retornamos|passamos|confirmamos|chamamos|procuramos)"
    ),
    "lembrar": (
        r"(avisar|lembrar|notificar|retornar|informar|escrever|ligar|chamar|responder|contatar|enviar|mandar|alertar|contactar)"
    ),
    "lembrando": r"(avisando|lembrando|informando|enviando|mandando|ligando|escrevendo|retornando|entrando em contato|chamando)",
    "lembrete": r"(lembrete|aviso|alarme|alerta|notificacao)",
    "feito": r"(agendad|programad|marcad|reservad|criad|configurad|definid|anotad|registrad|salv|ativad|combinad|confirmad)[oa]s?\b",
    "retorno": r"(retorno|resposta|toque|alo|ligada|ligadinha|posicao|posicionamento)",
}

ACTIONS = r"""
<I will> (remind|notify|alert|nudge|ping|poke|investigate|monitor|follow up|reach out|find out|look into|watch for|touch base|lyk)\b
<I will> (be )?<back>\b
<I will> (be )?(get|getting|be|keep|keeping|stay|staying) (in touch|in contact)\b
<I will> (be )?(return (to you|with|here)|check (with|in)\b|circle (back|around)|catch up with you|let (you|u|them|him|her) know|keep(ing)? (you|an eye|track|watch))
<I will> (inform|advise) (you|u)\b(?!<near>:(?!\d))
<I will> (contact|update|text|message|email|e-mail|phone|ring|call|write|write to|wake|buzz|chase|hit) (you|u)\b
<I will> be (reminding|notifying|contacting|calling|messaging|texting|emailing|writing|updating|alerting|sending|checking|following|monitoring|watching|tracking|reaching)\b
<I will> (schedule|book|queue)\b
<I will> (give|shoot|drop|send|leave) (you|u) (a|an|another) (\w+ )?<nudge>\b
<I will> (send|email|e-mail|mail|forward|message|text) (it|that|this|them|over|another|here|when|(you|u|a|the|your)\b)(?!<near>:(?!\d))
<I will> \w+<gap>\b(and|then) (<back>|follow up|let you know|tell you|update you|message you|call you|text you|email you|e-mail you|write to you|ping you)\b
<I will> take care of (reminding|calling|letting|contacting|following|sending)\b
<I am> \w+ing\b<near>, ?(please )?(give me|one|just|hold|bear|a)\b
<I will> (see to it|see|make sure|ensure|guarantee|take care)( that)? (you|they|he|she|it|a|the|your)\b<near>\b(remind\w*|hear|notified|contacted|message|called|know|told|answer|alert\w*)\b
<I will> (have|get|ask|tell|arrange for)<near>\b(call|ring|phone|contact|write|message|text|reach|email|get back|remind)( to)? (you|u)\b
<I will> (set|set up|create|add|put|make|place)\b<near>\b(<alarm>|calendar|agenda|diary)
<I will> (set|put) (it|that|this)( up| down)? (for|at)\b
<I will> (check|look|review|verify|ask|see|search|find|go|take)\b<gap>\b(and|then) (i'll )?(tell|let|send|give|report|get back|come back|write|message|inform|update|notify)\b
\blet me (get back to you|(check|look|find out|ask|confirm|verify|see|run|dig)\b<gap>\b(and|then) (i'll )?(get back|come back|tell|let|report|update|write|message))
\b(ill|well|im gonna) (remind|let (you|u) know|get back|notify|follow up|message|ping|text|call|write|send|keep you|update|be (back|in touch))\b
\b(count on (me|us)|you can be sure|rest assured)<near>\b(remind|notify|let you know|get back)
\b(i|we) (promise|swear|won't forget|will not forget|will never forget) (to (remind|notify|let|tell|get|come|write|call|check|message)\b|i'll\b)
\b(i|we) (won't|will not) let you (forget|miss)\b
<I am> (on it|working on it|looking into|scheduling|booking|setting (up )?(a|the|your) reminder|monitoring|watching (the|it|this|for)|tracking|keeping (an eye|track|watch)|going to remind)\b
<I am> \w+ing\b<gap>\band (will|i'll)\b
\b(you'll|you will|you're going to|you are going to) (be|get) (notified|reminded|alerted|contacted|informed|updated|pinged|messaged|texted)\b(?! by (the|your|his|her|dr)\b)
\bfirst to (know|hear)\b|\b(mensajes?|mensajito|recado) (mi[oa]|nuestr[oa])\b|\b(mensagem|recado) (minha|nossa|meu|nosso)\b|\b(primer[oa] en|primeir[oa] a) (saber|enterar)
\b(you'll|you will|you should|expect to|going to) (hear|be hearing) (back|from (me|us|our))\b
\b(you'll|you will|you're going to|expect|expect to) (get |receive |see |have |hear )?(back )?(a |an |the |your |another |my |one )?(<alarm>(?! from (the|your))|(nudge|message|answer|reply|response|update|news|call|text|e-?mail|quote) from (me|us|our)\b|(our|my) (call|message|answer|reply)\b)
\b(you'll|you will) (find|get|receive|see|have)<near>\b(message|reply|note) from (me|us)\b
\b(you'll|you will) (get|receive|have) my (message|answer|reply|response|call|text|quote|update)\b
\b(answer|result|reply|reminder|update)s? (will (come|arrive|follow|be (here|sent|delivered|posted)(?! (to you )?(by|on)\b))|comes (here|as soon|when|once))
\b<alarm>s? (will (go|pop|ring|reach|show|appear|land|fire|be with)|(goes|pops|rings|fires|arrives|comes|lands) (off|out|up|at|on|tomorrow|here))\b
\b(message|text|reminder|notification) will be sent to you\b|\bwill be (sent|posted|shared) (here|in this chat|by me)\b|<start>message incoming
\b(every|each)\b<near>\byou (get|receive) (a|your|the) <alarm>\b|\byou (get|receive) (a|your|the) <alarm>\b<near>\b(every|each)\b
<I will> be right with you\b|\bon the case\b|\b(i'll|we'll|will) keep you (posted|updated|informed)\b
<start>will (remind|notify|ping|message|alert|update|follow up|write to you|tell you|have (an|the) answer|get back|let (you|u) know)\b
<start>((be|brb) )?(right )?back (in (a|an|one|two|five|ten|\d+)|soon|shortly|to you|with (the|your|an|a|more))\b|<start>(brb|be right back)\b
<start>(reminding|notifying) you\b<gap><later>
<start>(talk|speak|chat) (to|with) you (tomorrow|on [a-z]{3,6}day|at \d|in (a|an|one|two|\d))
\bi (remind you|let you know|notify you|get back to you)\b(?! that)<gap><later>
\b(our|the|my) [a-z ]{0,20}(team|staff|colleagues?|office|advisers?|advisors?|agents?)(,|,? and)? (who|they)( will|'ll) (contact|call|get|be in touch|write|reach|follow|let)\b

(<te> )?(avis|record|notific|contact|llam|alert|comunic|escrib)[aei]r(e|emos)\b
(<te> )?<avisar>(e|emos)\b(?! (tus|sus|a tus|a sus|las|la) pregunta)(?!<near>:(?!\d))
<te> (manten(dre|dremos|go|emos)|ten(dre|dremos|go|emos)) (al (tanto|corriente|dia)|informad|avisad|actualizad)
\by (ya )?(te|le|les|se)( lo| la| los| las)? (digo|cuento|envio|mando|aviso|confirmo|informo|escribo|respondo|llamo|contesto|comento|paso|marco|contacto)\b(?!<near>:(?!\d))(?! (que|por que|como)\b)
\byo (te|le|les) (escribo|llamo|marco|busco|contacto|hablo)\b
<te> (regreso|devuelvo|devolvere|regresare|devolvemos) (la|el|tu|su) (llamad\w|mensaje)
\b(nos comunicamos|me comunico|nos ponemos en contacto|me pongo en contacto|nos contactamos|me contacto) con(tigo)?\b
\b(voy|vamos) a estar (en contacto|<avisando>)\b
\b(hare|haremos|hago|hacemos) una llamada|<te> hago (acordar|recordar)\b|\b<te> recordamos\b(?! que\b|:|<past>)
\b(asesor|equipo|companer|colega|area)\w*<near> (y|e) (el|ella|ellos|ellas|ele|ela|eles|elas|que) (te|le|lo|la|lhe) \w+
\b(equipe|consultor|atendente|pessoal)\w*<near> e (ele|ela|eles|elas) (te|lhe|vai|vao) \w+
\b(pido|pedire|pedimos|pediremos|hare|haremos|voy a pedir|voy a hacer)\w*<near>\bque ((un|una|mi|nuestr\w+) \w+ )?(te|le|lo|la|los|les) (llam|contact|escrib|avis|inform|record|respond|marqu|atiend)\w+
<te> (aviso|avisamos|recuerdo|recordamos|notifico|notificamos|alerto|agendo|apunto|anoto)\b(?!:| que\b| de que\b|<past>)
\b(te|se) lo (recuerdo|recordamos)\b
\by(a|o) (te|le|les|os|se|lo)( lo| la)? (digo|confirmo|respondo|averiguo|cuento|reviso|paso|aviso|informo|envio|mando|verifico|consulto|recuerdo|contesto|miro)\b(?!:| que\b)
<te> (hare (saber|llegar)|estare(mos)? <avisando>|vuelvo a (escribir|contactar|llamar|avisar|marcar)|volvere(mos)? a (escribir|contactar|llamar))\b
\b(estare|estaremos|seguimos|seguiremos) (<avisando>|en contacto\b|monitoreando|al tanto|pendientes? y)
\b(se|nos) (te |le |les )?estara?(n|mos)? comunicando\b|\bestaremos en contacto\b
\b(estoy|estou|to) \w+ndo(lo|la|-o|-a)?,? (por favor,? )?(dame|deme|espera|esper|un (moment|minut)|um (moment|minut|instant)|permit|me (da|de|dar) |so um|aguard)
\bestoy (monitoreando|vigilando|averiguando|agendando|programando)\b
\bestoy (verificando|revisando|consultando|checando|pendiente|atent[oa]|al tanto)\b<gap>\b(te|le|les) (aviso|digo|cuento|confirmo|respondo|informo|escribo)\b
\b((te|le) )?(doy|daremos|dare|damos|voy a dar|vamos a dar)(te|le)? (una |la |su )?(seguimiento|respuesta|llamada|llamadita|razon)\b(?!:)
<te> (echo|pego|tiro|mando|hago|dejo) (un|una) (mensaj\w+|llamad\w+|grito|toque|whats\w*|telefonazo|texto)\b
\bse (te|le|les) (avisara|notificara|recordara|informara|contactara)\b
\b(te|le|lo|la|les|los|las) (contactaran|llamaran|avisaran|escribiran|notificaran|informaran|responderan|van a (contactar|llamar|avisar|escribir|responder|informar|notificar))\b
\b((te|le|les|os|se lo) )?(voy|vamos) a (avisar|recordar|notificar|contactar|programar|agendar|averiguar|investigar|estar pendiente|estar al tanto|mantener|monitorear|vigilar|dar(te|le)? seguimiento)
\b((te|le|les|os) )?(voy|vamos) a (escribir|llamar|informar|responder|decir|contar|enviar|revisar|verificar|consultar|comprobar|confirmar|preguntar|checar)\w*<gap>(<later>|\by (te|le|les|os|vuelvo|regreso)\b)
\b(voy|vamos) a (poner|crear|dejar|configurar|hacer)\w*<near>\b(<aviso>|<hecho>)
\b(vuelvo|regreso|volvere|regresare) (con|en|pronto|enseguida|luego|mas tarde|manana|cuando|apenas|contigo|aqui|el (lunes|martes|miercoles|jueves|viernes|sabado|domingo)|a (escribir|contactar|llamar|hablar|responder|avisar))
\b(ya|ahora|enseguida) (vuelvo|regreso)\b
\b(volveremos|volvemos|regresamos) (con (la|una|tu|su) |a (escribir|contactar|llamar|avisar))
\b(averiguo|reviso|verifico|consulto|investigo|busco|compruebo|miro|pregunto|veo|checo|dejame|permiteme|dejeme|permitame|deja)\b<gap>\by (ya )?((te|le|les|os) (lo )?(digo|cuento|aviso|confirmo|informo|escribo|paso|respondo|llamo|contesto|marco)|vuelvo\b|regreso\b)
\b(lo|la) (averiguo|investigo|agendo|programo)\b
<te> (agendo|programo|dejo (todo )?<hecho>|(pongo|creo|configuro|programo|dejo)<near>\b<aviso>)
\b(lo|la) dejo (ya )?<hecho>
\b(programar|agendar|reservar|averiguar|investigar|monitorear)(e|emos)\b
<start>(pongo|creo|dejo|anoto|programo) (un|el|su|tu) <aviso>
\b(te|le) (mando|envio|paso)\b<near>\by (un|el|tu|su) <aviso>
\b(pondre|creare|configurare|hare|dejare)\b<near>\b(<aviso>|<hecho>)
\b(ya )?estoy en (ello|eso)\b|\b(ya )?me pongo (con|en) (ello|eso)\b
\b(me encargo|me encargare|me ocupo|me aseguro|me asegurare|me comprometo|asegurare) (yo )?(de |a )(que |no )?(te |le |lo |la )?(lleg\w+|recib\w+|avis\w+|record\w+|sep\w+|escrib\w+|llam\w+|contact\w+)
\b(me encargo|me ocupo) y (te|le)\b
\b(cuenta|cuente) con (mi|que|el) <near>\b(<aviso>|avis\w+|record\w+)|\bdalo por hecho\b
\bno (dejo|dejare|voy a dejar) que se (te|le) (pase|olvide)
\bme (pondre en contacto|comunicare)|\bnos (pondremos en contacto|comunicaremos)
\b(recibiras|recibira|recibe|vas? a recibir|tendras|tendra|(te|le) (llegara|va a llegar|llega)|veras)\b<near>\b(<aviso>|mensajes?|mensajito|llamada|noticias|respuesta)( (mi[oa]s?|nuestr[oa]s?))?\b(?! (de (la|tu|su|los|confirmacion)|del)\b)
\b(recibira|recibiras) mi mensaje\b|\b<aviso>( \w+){0,2} ((te|le) (llegara|llega|saldra|aparecera)|saldra|llegara|sonara)\b
\b(cada|todos los|todas las)\b<near>\b(te|le|les) (escribo|escribimos)\b|\b(te|le|les) (escribo|escribimos)\b<near>\b(cada|todos los|todas las)\b
\b(seras|sera) (notificad|avisad|contactad)[oa]
\brespuesta (te )?(llega|llegara|aparecera) (aqui|en cuanto|cuando|apenas|por)
\ben (breve|un momento|minutos|seguida) (te|le|lo|la|los|las) (atendera|atiende|contacta|llama)\w*
\bno (me )?(olvidare|olvidaremos|voy a olvidar)\w* (de )?(avisar|recordar|escribir)|\bno se me olvida(ra)? (avisar|recordar)
\b(prometo|quedo en|me comprometo a) (avisar|recordar|escribir|volver|llamar|notificar)

(\b(te|lhe|lhes|o|a) )?\b<lembrar>(ei|emos)\b(?! (suas|as|sua) (pergunta|duvida))(?!<near>:(?!\d))
\b(te|lhe|lhes) (mantenho|manterei|manteremos|mantemos|dou retorno)\b|\b(mantenho|manterei|manteremos|mantemos) (voce|o senhor|a senhora) (inform|a par|atualiz)
\be (ja )?(eu )?(te|lhe|lhes) (digo|falo|conto|aviso|respondo|informo|confirmo|passo|escrevo|ligo|chamo|retorno|mando)\b(?!<near>:(?!\d))(?! (que|por que|como)\b)
\bnos (te|lhe) (ligamos|avisamos|retornamos|escrevemos|chamamos|lembramos)\b(?!<past>)
<start>(aviso|retorno|confirmo|respondo) (por aqui|aqui|assim|quando|ja|em|amanha)\b
\b(farei|faremos) (uma|a) ligacao|\bfala(rei|remos) (com (voce|o senhor|a senhora)|contigo)
\b(peco|pedirei|pedimos|vou pedir|farei|vou fazer)\b<near>\b(te|lhe) (ligar|chamar|contatar|avisar|escrever|responder|retornar|ligu|cham|contat|avis|escrev)\w*
\b(te|lhe|lhes) (lembro|aviso|notifico|retorno|alerto|agendo|avisamos|lembramos|notificamos)\b(?!:| que\b| de que\b|<past>)
\b(agendarei|programarei|agendaremos)\b
\beu( ja)?( te| lhe)? (aviso|lembro|notifico|retorno|mantenho|manterei)\b(?!:| que\b| de que\b)
\b(aviso|lembro|notifico|manterei|mantenho|avisamos|notificamos|lembramos) (voce|voces|o senhor|a senhora|a voce)\b(?! que| de que|<past>)
\b(aviso|lembro|notifico)-(te|lhe|o|a)\b(?! que| de que)
\ba gente (te |lhe |ja )*(avisa|lembra|retorna|liga|chama|responde|notifica|entra em contato|vai (te |lhe )?(avisar|ligar|lembrar|chamar|retornar|responder|entrar em contato))\b
\b(ja|logo) (te|lhe) <falo>\b(?!:| que\b)|\bja (verifico|confirmo|retorno|respondo|checo|consulto|vejo)\b(?!:| que\b)
\bque (eu )?(ja )?(te |lhe )(aviso|lembro|respondo|retorno|chamo|ligo|escrevo|falo)\b
\bja,? ja (eu )?(te|lhe|volto|retorno|respondo)
\b(te |lhe )?(dou|damos|darei|daremos|dar|dando)( a voce| pra voce)? (um|uma|o|a)( \w+)? <retorno>\b
\b(retorno|retornamos|retornarei|retornaremos) (o|a|seu|sua|o seu|para|pra|ao) (contato|ligacao|senhor|senhora|voce|mensagem)
\b(vou|vamos|irei|iremos)( ja| tambem| te| lhe| lhes| sim| com certeza){0,3} (avisa[rn]|avisa-|lembra[rn]|lembra-|notificar|notifica-|retornar|agendar|programar|averiguar|investigar|acompanhar|monitorar|entrar em contato|manter|<lembrando>)
\b(vou|vamos|irei|estarei|estaremos)( estar)?( te| lhe)? <lembrando>
\b(estarei|vou estar) (monitorando|acompanhando|de olho|atent[oa])
\b(vou|vamos|irei|iremos)( te| lhe)? (escrever|ligar|informar|responder|dizer|enviar|mandar|verificar|checar|conferir|consultar|confirmar|perguntar|ver|pesquisar|falar|chamar)\b<gap>(<later>|\be (ja )?(te|lhe|volto|retorno|aviso) )
\b(vou|irei) (garantir|cuidar|fazer questao)\b<near>\b(lembr\w+|avis\w+|receb\w+|notific\w+)
\b(vou|irei)( te)? (criar|colocar|deixar|configurar|fazer|por|marcar|definir)\b<near>\b(<lembrete>|<feito>)
\b(vou|vamos|irei)( te| lhe)? (mandar|enviar)<near>\b(<lembrete>|mensagem)\b
\bcuido de (te |lhe )?(lembrar|avisar|ligar|retornar)
<start>(coloco|crio|marco|deixo|anoto) (um|o|seu) <lembrete>
\b(te|lhe) (mando|envio|passo)\b<near>\be (um|o|seu) <lembrete>
\b(criarei|colocarei|marcarei|deixarei)\b<near>\b(<lembrete>|<feito>)
\b(volto|voltarei|retorno|retornaremos|voltaremos) (com|em|logo|ja|assim|quando|amanha|mais tarde|aqui|ate|para te|a (te|falar|escrever|chamar|entrar)|na (segunda|terca|quarta|quinta|sexta))
\bja (eu )?(volto|retorno|verifico|confirmo|checo)\b(?!:| que\b)
\b(verifico|vejo|confiro|checo|consulto|pesquiso|descubro|pergunto|confirmo|verificar|checar|conferir|consultar|pesquisar|descobrir|perguntar|deixa eu|deixe-me|me deixe)\b<gap>\be (ja )?(te |lhe )?(aviso|digo|falo|conto|retorno|respondo|informo|volto|confirmo|passo|mando|chamo|dou)\b
\b(estou|to|ja estou) (monitorando|de olho|acompanhando|verificando|vendo|checando)\b<gap>\be (ja )?(te |lhe )?(aviso|digo|falo|conto|retorno|respondo|informo|volto|mantenho)\b
\b(entro|entramos|entrarei|entraremos) em contato\b
\b(te|lhe) (agendo|programo|deixo <feito>|(crio|coloco|marco|configuro|ponho)<near>\b<lembrete>)|\bdeixo <feito>
\b(ja )?estou (nisso|trabalhando nisso|cuidando disso|vendo isso|verificando isso|monitorando)\b
\b(voce|o senhor|a senhora|<start>)( ja)? ?((vai )?(recebera|receber|tera|ter))\b<near>\b(<lembrete>|resposta|noticias|novidades|(mensagem|ligacao) (minha|nossa|da nossa|de nossa))\b(?! (d[ao] |pel))
\b(chega|chegara|vai chegar|vai receber)\b<near>\b((o|seu|um) <lembrete>|uma mensagem)\b(?! d[ao]\b)
\b(todo|toda|todos os|cada)\b<near>\bvoce recebe (o|um|seu) <lembrete>|\bvoce recebe (o|um|seu) <lembrete>\b<near>\b(todo|toda|todos os|cada)\b
\b<lembrete>( \w+){0,2} (vai chegar|chega|chegara|vai tocar|sera enviado)\b
\b(voce|o senhor|a senhora) (sera|vai ser) (avisad|notificad|lembrad|contatad)[oa]
\b(vao|irao)( te| lhe)? (ligar|avisar|contatar|chamar|retornar|responder|escrever)\b
\bresposta (chega|chegara|vem|vira|aparece|vai chegar) (aqui|assim|quando|por)
\bnao (vou |me )?(esquecer|esquecerei|esqueco) de (te |lhe )?(avisar|lembrar)
\bnao (vou deixar|deixo|deixarei) (voce |que voce )(esquecer|esqueca|perder|perca)
\b(prometo|fico de|me comprometo a) (te |lhe |que (eu )?te )?(avisar|aviso|lembrar|lembro|escrever|voltar|ligar|retornar|notificar)
"""

# A promise only when the sentence says that it is for later: "I'll tell you what it covers: hail" is not.
DEFERRED = r"""
\b(i<will>|gonna)( (also|then|just|still|gladly|happily|personally|of course|definitely|certainly)){0,2} (?!(not|never|need|have to|be able|assume|see you|be (happy|glad|honest|brief|here|clear|able)|show|help|take that|leave|miss|stop|cancel)\b)[a-z-]+
\b(te|le|les)( lo| la)? <not only words>[a-z]{3,12}(?<=o)(?<!ndo)\b
\b(te|le|les|se)( lo| la)? (?!(ped|cobr|devolv|entreg|esper|atend|recib|reembols|necesit|tomar))[a-z]{2,12}(are|ere|ire|aremos|eremos|iremos)\b
\b(te|le|les) (doy|damos|dare|daremos) (la|el|una|mi|tu|su) <cotizacion>
\b(eu|te|lhe)( ja)?( te| lhe| o| a)? <not only words>[a-z]{3,12}(?<=o)(?<!ndo)(?<!ao)\b
<I will> (send|tell|give|show|share|bring|answer|reply|respond|check|look|review|verify|confirm|ask|try|say|post|write|inform|advise|forward|do|pass|speak|talk|drop|offer|get|text|message|call|prepare|see(?! you)|be (here|with you|there)|have<near>\b(for you|ready|<news>|something|it|that))\b
\b(you'll|you will|you're going to|expect)( get| receive| see| have)? (a |an |the |your |my )(message|<news>)\b(?! from (the|your)\b)
\b(our|the|your) (price|quote|answer) will be (here|with you|in this chat)\b
<te> <digo>\b(?! (su|tu) (cita|consulta|turno))
<te> (responden|contactan|llaman|avisan|escriben|informan|confirman)\b|\b(eles|elas) (te |lhe )?(respondem|ligam|retornam|avisam|chamam|escrevem)\b
\b(tienes|tiene|tienen|tendras|tendra)( usted)? (la|una|tu|su|mi|el|un) <cotizacion>\b
\b(te|lhe|lhes|eu)( te| lhe)? <falo>\b(?! (sua|seu) (consulta|horario))
(?<!\bo )(?<!\bum )(?<!\bde )(?<!\bdo )(?<!seu )(?<!imo )(?<!iro )\b(mando|envio|passo|compartilho|escrevo|respondo|retorno|confirmo|falo|ligo|agendo|estou te <lembrando>)\b(?! (sua|seu) (consulta|horario))
\b(voce|o senhor|a senhora)( ja)? (tem|tera|vai ter) (a|uma|o|um|novidade|sua) ?(resposta|orcamento|cotacao|valor|retorno|novidades?|s)?\b
<start>(avisamos|escrevemos|informamos|ligamos|chamamos|retornamos|respondemos|lembramos)\b
\bteremos (uma|a) (resposta|novidade|posicao)\b
\b(vou|irei)( te| lhe)? (escrever|ligar|responder|dizer|enviar|mandar|verificar|conferir|confirmar|passar|falar)\b
"""

# A time to come, or what a promise waits for.
LATER = r"""
\b(tomorrow|tonight|today(?!'s)|later|soon|shortly|afterwards|as soon as|once (it|i|we|they|that|this|there|the|my)|within|whenever)\b
\b(when|after|before) (i|we|it|it's|they|there|that|this|the|ready|done|your|my)\b|\bwhen [a-z]+ (is|are|has|have|arrives|comes|answers)\b
\bby (noon|then|\d|[a-z]{3,6}day|tomorrow|the end)\b|\bthe (moment|minute|second|instant)\b|\bnext time\b|\b(one|two|five|\d+) minutes\b|\b(next|this) (week|month|morning|afternoon|evening|[a-z]{3,6}day)\b
\bin (a|an|half|one|two|three|five|ten|\d+|the next) ?(few |couple of |an )?(moment|second|sec|minute|hour|day|week|month|bit|while)s?\b|\bon [a-z]{3,6}day\b
\bat (\d|noon|midnight)|\bon the \d|\bin the (morning|afternoon|evening)\b|\b(right|straight|just) after\b|\bafter (lunch|work)\b|\bfirst thing\b|\b(if|should) (anything|something|it|that|there|there's|they|the)\b|\b(a|one|two|\d+) (day|hour|week|minute)s? (before|prior)\b
\b(give me (a|an|half|one|two|five|ten|\d+|until|some)|(one|just a|a) (moment|minute|sec|second)|bear with me|hold on|hang tight|sit tight|leave it with me)\b

(?<!la )\bmanana\b|\b(luego|mas tarde|despues|pronto|enseguida|ahorita|ya mero|chance|tantito|hoy mismo|ya mismo|dentro de|en cuanto|apenas|tan pronto|una vez que|en el transcurso|a mas tardar|a primera hora|(otra|proxima) semana)\b
\b(en|dame|deme|espera|esperame|espereme|permitame|permiteme|solo) (un|una|unos|unas|media|dos|tres|cinco|diez|breve|\d+)\b|\bun (momento|momentito|minuto|minutito|segundo|segundito|instante|ratito|ratico)\b|\bal (rato|ratico|ratito)\b
\bcuando (?!(quier|gust|dese))|\ba las? \d|\bal mediodia\b|\ben la (tarde|noche|manana)\b|\bni bien\b|\ben lo que me\b|\b(el|este) (proximo|lunes|martes|miercoles|jueves|viernes|sabado|domingo)\b|\bla proxima\b|\bhoy\b(?= (te|le|por|en|mismo)\b|$)
\bsi (cambia|hay|algo|baja|sube|llega|se|surge|aparece)\b|\bcualquier (cosa|novedad|cambio|noticia)\b|\b(un|dos|tres|una|\d+) (dia|hora|semana|minuto)s? antes\b|\bantes (de|del) (que|dia|vencimiento)\b|\bpor la (tarde|noche)\b

\b(amanha|depois|mais tarde|logo|em breve|em instantes|daqui a|dentro d[aeo]|assim que|ja ja|hoje mesmo|ainda hoje|ate (amanha|sexta|segunda|o fim))\b
\bem (um|uma|uns|alguns|meia|dois|cinco|dez|\d+)\b|\bquando\b|\bas \d|\bao meio-dia\b|\b(um|mais um) (tempinho|pouquinho|momentinho|minutinho|instantinho)\b|(^|, )(chegando|tendo|saindo|sabendo) |\bno decorrer\b|\bde manha\b|\bda proxima\b|\bainda hoje\b|\bsemana que vem\b
\b(na|nesta) (proxima|segunda|terca|quarta|quinta|sexta)\b|\b(no|neste) (sabado|domingo)\b|\bse (mudar|houver|algo|baixar|surgir|o|a|aparecer|cair|liberar)\b|\bqualquer (coisa|novidade|mudanca)\b
\b(me da|me de|aguarde?|espera|espere|so) (um|uma|uns|so|cinco|dez|dois|\d+)\b|\b(um|dois|uma|duas|\d+) (dia|hora|semana|minuto)s? antes\b|\bantes (de|do) (vencer|vencimento|dia)\b|\b(a|de) tarde\b
"""

# A promise when the one who does it belongs to the house: "the courier will call you" is a fact, "our team will call you" is not.
OTHERS = r"""
(<will>| should)( \w+ly| then| also| soon| now)?( be)? (remind|notify|alert|nudge|ping|contact|follow up|following up|reach out|reaching out|reach you|get back|getting back|come back|call(?! (your|the|out)\b)|phone you|ring you|text|message you|email you|e-mail you|write|answer (you|here)|reply|respond|inform|update you|confirm|let (you|u)|tell you|get in touch|getting in touch|in touch|give you (a|an) (\w+ )?<nudge>|send (you )?(a|an|the|your) (\w+ )?(<alarm>|message|<news>)|send your (certificate|document|paper|polic|invoice|receipt)\w*)(ing)?\b
\band (get|be|come|call|contact|write|reach|follow|let|email|text|message) (in touch|back|you\b|to you|out|up)
\b(te|le|les|os|se|lo|la|los|las)( te| le| les)? ((avisar|recordar|notificar|informar|contactar|escribir|llamar|responder|contestar|confirmar|comunicar|marcar|hablar|devolver|dar|hacer)an?|pondran? en contacto|(avisa|contacta|contesta|llama|escribe|responde|recuerda|informa|notifica|marca|comunica)n?|(va|van) a (avisar|recordar|notificar|informar|contactar|escribir|llamar|responder|contestar|marcar|hablar|dar|comunicar|poner en contacto))\b
\b(va|van) a (avisar|recordar|notificar|informar|contactar|escribir|llamar|responder|contestar|marcar|comunicar)(te|le|lo|la|se|les)\b
\b(te|le|les) (deberia|debe|deben|podra) (llamar|contactar|escribir|responder)\b
\b(deve|devem|deveria)( te| lhe)? (ligar|chamar|escrever|responder|retornar|entrar em contato)\b
\b(te|le|les) ((enviar|mandar)an?|(va|van) a (enviar|mandar)) (?!(un|el) (codigo|enlace|link))
\b(te|le|lo|la|les)? ?(estara|estaran|va a estar|van a estar) <avisando>
\b(entrara|entrarao|entra|entram|(vai|vao|ira|irao) entrar|e (te )?entrar|que entrem?) em contato\b
\b(vai|vao|ira|irao)( te| lhe)? (ligar|avisar|retornar|responder|contatar|lembrar|chamar|escrever|notificar|informar|falar com|confirmar|(mandar|enviar) (um|uma|o|a))\b
\b(te|lhe) (liga|avisa|retorna|responde|chama|escreve|lembra|cutuca|contata|informa|notifica|(manda|envia|da) (um|uma|o|a))m?\b
\b(vai|vao) estar( te| lhe)? <lembrando>
\b((ligar|avisar|retornar|responder|lembrar|notificar|informar|chamar|escrever|contatar)(a|ao)|(enviara|mandara|envia|manda)o? (um|uma) (<lembrete>|mensagem|resposta))\b
"""

HOUSE = r"""
\b(our|nuestr[oa]s?|noss[oa]s?) (?!courier|technician|driver|mensajer|tecnic|repartidor|entregador|motoboy)\w+
\bmy (colleague|team|manager|supervisor|coworker|boss|assistant)|\bmis? (companer|colega|equipo|jef|supervisor)|\b(minha|meu) (colega|equipe|time|chefe|gerente|supervisor)
\b(a|an|another|one of the|the) (\w+ )?(colleague|teammate|agent|advis[eo]r|representative|rep|specialist|consultant|expert|broker|person|human|operator|team member|member of (our|the))\b
\b(un|una|um|uma) (?!mensaj|mensag|recado|recorda|lembre|aviso|tecnic|repartidor|entregador|motoboy|correo|codigo|dia|hora|seman|vez|momento)\w+
\b(customer (service|care)|(servicio|atencion) al cliente|atendimento)\b
\b(someone|somebody|alguien|alguem|a gente|uno de los|um dos|uma das)\b
\bthe (\w+ )?(team|system|bot|assistant|chatbot|office|front desk|reception|receptionist|staff|back office|support)\b
\b(un|una|otro|otra|algun|el|la|al) (asesor|gerente|ejecutiv|agente|companer|colega|especialista|representante|operador|consultor|persona|human|vendedor|equipo|sistema|bot|asistente|recepcion|oficina|sucursal|area|personal|departamento|corredor)
\b(um|uma|outr[oa]|algum|o|a|ao) (atendente|gerente|consultor|especialista|colega|corretor|representante|agente|pessoa|assessor|vendedor|equipe|time|sistema|robo|bot|assistente|recepcao|escritorio|pessoal|suporte|central|setor|filial)
"""

BOOKINGS = r"""
<I have> (scheduled|booked|arranged|queued|programmed)\b
<I have> (set|set up|created|added|saved|made|put|placed|noted|logged|activated|enabled|turned on|switched on|got|registered)\b<near>\b(<alarm>|calendar|agenda|diary|my (to-do )?list)
<I have> (set|noted|marked|put|got) (it|that|this)( up| down)? (for|at)\b
<start>(added|created|booked|scheduled|pencilled|penciled)\b<near>\b(<alarm>|calendar|you (in|for))\b
\b<alarm>[^.!?]{0,40}<is> (set up|on<end>|active)
<I have> (you|pencil+ed you) (in|booked|down|scheduled)\b
\b(has|have)( now| just| already| also)? been( now| successfully| just)? (scheduled|booked|saved|added|set|set up|created|queued|arranged)\b
\b(<alarm>|call|check|message|task|meeting|appointment)\b<near><is> (scheduled|booked|queued|set|set up|created|saved|in place|confirmed for)\b(?! of)
\b(it|that|this|everything|all)<is> (scheduled|booked|queued|locked in|set (for|up for|to remind)|set\b(?=$|[.!,]))
\b<alarm>('s)? (is |now )?(set|scheduled|booked|created|saved|added|confirmed|activated|in|on|live|active)\b(?=$|[.!,;:]| for\b| at\b| on\b| in\b| to\b| and\b)
\b<alarm>s are (now )?(set|scheduled|booked|created)\b
<start>(your |the |a |one )?<alarm> ((is )?(for|on|at) )?<when>\b
\b(you're|you are|it's|that's|we're)( now| already)? (all set|booked|scheduled|set|down|locked in) (for|at|to be reminded)\b
<I have> (got )?you down for\b|<I have> made a note to (remind|notify|let|get|check|write|message)\b
\b(it's|it is|that's|that is|you're) (on|in) (my|the|your) (calendar|agenda|diary|schedule|list|to-do list)\b
<start>((done|ok|okay|great|perfect|sure|got it),? )?(all set|scheduled|booked|noted|set) (for|at|on) (\d|noon|tomorrow|today|tonight|[a-z]{3,6}day|next|the)
<start>(all )?(scheduled|booked)(?= ?$| ?[^\w ]| tomorrow\b| (a|an|another|your|it|that)\b)
\b(\d( ?[ap]m)?|o'clock|noon|tomorrow|[a-z]{3,6}day) it is\b
\bconsider it (scheduled|booked|set|done)\b

\b(queda|quedan|quedo|quedas|quedaste|quedaron|quedara|ha quedado|han quedado)( \w+){0,4} <hecho>
\b(queda|quedo) list[oa] (el|la|tu|su) <aviso>|\bya quedo<end>
\b<aviso>( \w+){0,2} (queda|quedo|quedara|es|sera) para\b
<start>(tu |su |un |el )?<aviso> (para (el|la|las|manana|hoy)|manana|a las?)\b
\b(tienes|tiene) (tu|su|el) <aviso> (para|el|a|manana)\b
\bacabo de (agendar|programar|crear|poner|anotar|guardar|activar|configurar|reservar)
<start>(cita|llamada|consulta|turno|visita|reunion) (<hecho>|confirmada)
\b(ha|han) sido <hecho>
\b(fue|fueron) (programad|agendad|reservad|cread)[oa]s?\b
\b(<aviso>|llamada|tarea|mensaje|cita|todo|ya|listo|lo|la)( \w+){0,3} (esta|estan|tienes|tiene|tengo)( ya)? <hecho>
\bya (tienes|tiene) (el|tu|su|un) <aviso>|\b(lo|la) tengo <hecho>
<start>((ya )?(esta|tienes)( todo| ya)?) (programad|agendad|reservad|fijad)[oa]\b
\b<aviso>( [\w:]+){0,5} (<hecho>|list[oa]\b|activ[oa]\b)
<start>(list[oa]|hecho|ya esta),? (el|la|tu|su) <aviso>
\b(he|hemos)( ya)? (programado|agendado|reservado|planificado)\b
\b(he|hemos)( ya)? (puesto|creado|anotado|fijado|dejado|configurado|guardado|registrado)\b<near>\b(<aviso>|<hecho>|para (el|manana|las))
\bya (quedo|quedaron|esta|estan) (el|la|los|las|tu|tus|su|sus) <aviso>
\bya (te|le|les|os|lo|la|te lo|te la|se lo|se la) (agende|programe|reserve|anote|apunte|puse)\b
<start>((listo|hecho|ok|vale|perfecto|claro|bueno),? )?(todo )?(programad|agendad|reservad|anotad|apuntad)[oa](?= ?$| ?[^\w ]| para\b| a las?\b| el\b| manana\b| hoy\b| en\b)

\b(ficou|ficaram|fica|ficam|ficara|foi|foram)( \w+){0,3} <feito>
\b<lembrete>( \w+){0,2} (ficou|fica|esta|ja esta) (para|pra|ativo)\b
\b(<lembrete>|ligacao|tarefa|mensagem|consulta|reuniao|tudo|ja)( \w+){0,3} (esta|ta)( ja| tudo)? <feito>
<start>(ja )?(esta|ta)( tudo| ja)? <feito>
\b<lembrete>( \w+){0,5} (<feito>|pronto\b|salvo\b)
<start>(seu |o |um )?<lembrete> (ok )?(para|pra|as|na|amanha)\b
\b(agendei|programei|reservei)\b|\b(agendamos|programamos|criamos|marcamos) (o|a|um|uma|seu|sua) ((seu|sua) )?(<lembrete>|ligacao|consulta|visita|chamada|retorno)
\bacabei de (agendar|programar|criar|marcar|anotar|configurar|colocar|salvar|ativar|reservar)
\b(marquei|criei|coloquei|anotei|configurei|deixei|salvei|defini|registrei|ativei)\b<near>\b(<lembrete>|<feito>|agenda|(para|pra) (o|as|amanha|sexta|segunda|terca|quarta|quinta))
<start>((pronto|feito|ok|certo|perfeito|claro|beleza),? )?(tudo )?(agendad|programad|marcad|reservad|anotad)[oa](?= ?$| ?[^\w ]| para\b| as\b| amanha\b| hoje\b| em\b)
"""

# Only the accent tells "I have booked" from "book!" and from "that I book", so these are read before folding.
BOOKINGS_BY_ACCENT = r"""
\b(agendé|programé|reservé)\b
\b(anoté|apunté|creé|dejé|configuré|registré|guardé|activé|puse|fijé)\b<near>\b(<aviso>|<hecho>|para (el|mañana|las))
"""

# Only the accent tells "he called you" from "I call you" too.
DONE_BY_ANOTHER = r"""
\b(te|le|les|os|lo|la|se|nos)( lo| la| los| las)? (?!qued|agend|program|reserv|cre|guard|anot)\w+ó\b
"""

SOUNDS_LIKE_A_DENIAL = r"""
\b(no problem|no worries|not a problem|don't worry|no doubt|not to worry|as soon as i can|whenever i can|why not)\b
\b(no hay problema|sin problemas?|no te preocupes|no se preocupe|no dudes|sin duda|no faltaba mas|como no|sin falta)\b
\b(sem problemas?|nao tem problema|nao se preocupe|sem duvida|nao ha problema|sem falta)\b
"""

DENIED_ACTION = r"""
\b(no|nunca|nao|tampoco|jamas|jamais|never|not)( me| eu)? $
\b(don't|do not|doesn't|does not|can't|cannot|couldn't|not|never|unable to) (think|believe|promise|guarantee|mean|say|saying|sure|know if)\b
\b(no|nao) (puedo|podemos|podre|podria|tengo como|posso|consigo|conseguirei|tenho como|vamos a|quiero|quero)( \w+)? $
\bno (puedo|podemos|podria) (prometer|garantizar|asegurar)|\bno (significa|creo|prometo|garantizo)\b
\bnao (posso|podemos) (prometer|garantir)|\bnao (significa|acho|prometo|garanto)\b
"""

DENIED_BOOKING = r"""
n't\b|\b(not|cannot|never|no|nothing|none|neither|nobody|no one|unable|without)\b
\b(nunca|nada|ningun|ninguna|ninguno|nadie|sin|tampoco|jamas|imposible)\b
\b(nao|nenhum|nenhuma|ninguem|sem|tampouco|jamais|impossivel)\b
"""

OFFERED = r"""
\b(whether|if|si|se)( (the|your|a|el|la|tu|su|o|seu|sua))? $
\b(do you (want|wish|need)|want me to|would you (like|prefer|want)|should|shall|may|can|could|might|whether) (me|i|we|it|you)\b
\b(i|we) (can|could|may|might|would|am able to|are able to|'d)\b|\bdo you (want|prefer|need)\b|\bwant me to\b|\bwould you (like|prefer)\b
\b(puedo|podria|podemos|podriamos|quieres que|quiere que|te gustaria|le gustaria|deseas|desea|prefieres|prefiere|te parece|le parece)\b
\b(posso|poderia|podemos|quer que|gostaria|deseja|prefere)\b|^ ?caso\b
"""

UP_TO_THE_CUSTOMER = r"""
\bif (you('d| would| do| ever)? ?(like|want|wish|prefer|tell|give|send|share|say|let|confirm|need|provide|agree|ask|choose|pick)|that works|so|that's ok)\b
\b(once|as soon as|when|whenever|after) you('ve| have|'re| are)?( have)? ?(tell|told|give|given|send|sent|share|say|said|confirm|confirmed|choose|decide|know|reply|ready|pay|paid|sign|signed|need|want|fill|filled|upload|uploaded|decided|chosen|finish|finished)\b
\b(tell|give|send) me (when|what (time|day)|which|the (time|day|date)|a (time|day|date)|your|and)\b|\b(just )?say (when|the word)\b|\blet me know (when|what time|which|the)\b
\bsi (lo |asi lo )?(quieres|quiere|quieren|prefieres|prefiere|deseas|desea|gustas|gusta|necesitas|necesita|te parece|le parece|estas de acuerdo)\b
\b(si|cuando|en cuanto|una vez que|despues de que) (usted )?me (lo )?(dices|dice|digas|diga|das|da|des|de|indicas|indica|indiques|indique|confirmas|confirmes|pasas|pases|envias|envies|cuentas|cuentes|respondas)\b
\b(dime|digame|indicame|indiqueme|pasame|dame|deme|cuentame) (cuando|a que hora|que (dia|hora|fecha)|la (hora|fecha)|el dia|una (hora|fecha)|un dia|y)\b
\b(si|cuando|en cuanto|una vez que|despues de que|apenas) (usted )?(me )?(lo )?(?!\w+ (el|la|mi|un|una) (?!hora|dia|fecha|cita|direccion|correo|dato|nombre|pago|numero))(confirme|pague|pagues|firme|firmes|llene|llenes|envie|mande|mandes|pase|decida|decidas|elija|elijas|comparta|compartas|das|mandas|envias)\b
\b(?!dej|permit|esper|aguar)[a-z]{1,10}(ame|eme|ime|anos|enos|inos)\b(?! (\w+ )?(moment|minut|segund|instant|rat|chance))[^.!?]{0,60}\by (te|le|lo|la|yo|se)\b
\bcuando (lo )?(quieras|quiera|gustes|guste|desees|prefieras)\b
\b(solo|basta con que|solo tienes que) (dime|digas|me digas|decirme|me lo digas)\b
\bse (voce )?(quiser|preferir|desejar|precisar|puder|concordar|me (disser|der|informar|passar|confirmar|enviar))\b
\b(quando|assim que|depois que) (voce )?(quiser|me (disser|der|confirmar|informar|passar|enviar|responder))\b
\b(me (diga|diz|da|de|passe|passa|informe|fale|fala)|diga-me|informe-me) (quando|que (horas|dia)|a que horas|a (hora|data)|o (horario|dia)|um (horario|dia)|uma (hora|data)|e)\b
\b(quando|assim que|depois que|se) (voce )?(me )?(pagar|assinar|preencher|enviar|mandar|passar|confirmar|decidir|escolher|der|disser)\b
\b(me (passa|passe|manda|mande|envia|envie|da|de|diga|diz|fala|fale)(?! (\w+ )?(moment|minut|segund|instant|temp))|envie|mande|diga|passe|informe) (o|a|seu|sua|um|uma|os|as)\b[^.!?]{0,60}\b(que|e) (eu|te|lhe|ja)\b
\b(basta|e so) (me )?(dizer|falar|avisar)\b
"""

NO_LONGER = r"""
\b(cancel\w*|removed|deleted|no longer|undone|dropped|elimin\w+|borr(e|ado|amos)|anul\w+|ya no|exclui\w*|apag(uei|ado)|removi\w*)\b
\b(yesterday|last (week|month|year|night|time|[a-z]{3,6}day)|ago|earlier|previously|had been|used to)\b
\b(ayer|anoche|(semana|mes|ano) pasad[oa]|hace (un|una|dos|tres|\d+)|anteriormente|el [a-z]{5,9} pasado)\b
\b(ontem|semana passada|mes passado|ano passado|ha (um|uma|dois|\d+) [a-z]+|anteriormente|[a-z]+ passad[oa])\b
\bby (your|dr|his|her|the (?!end|time|system|team))|\bpor (tu|su|seu|sua)\b|\bpel[oa] (seu|sua)\b
"""


def _compile(table: str) -> re.Pattern[str]:
    lines = [line for line in table.splitlines() if line]
    pattern = "|".join(lines)
    while any(f"<{name}>" in pattern for name in NAMES):
        for name, meaning in {**NAMES, "later": "|".join(LATER.split("\n")[1:-1]).replace("||", "|")}.items():
            pattern = pattern.replace(f"<{name}>", f"(?:{meaning})")
    return re.compile(re.sub(r"(?<!\\)\((?!\?)", "(?:", pattern))


_ACTIONS, _BOOKINGS, _BOOKINGS_BY_ACCENT = _compile(ACTIONS), _compile(BOOKINGS), _compile(BOOKINGS_BY_ACCENT)
_DEFERRED, _LATER, _OTHERS, _HOUSE = _compile(DEFERRED), _compile(LATER), _compile(OTHERS), _compile(HOUSE)
_DONE_BY_ANOTHER = _compile(DONE_BY_ANOTHER)
_DENIED_ACTION, _DENIED_BOOKING = _compile(DENIED_ACTION), _compile(DENIED_BOOKING)
_OFFERED, _UP_TO_THE_CUSTOMER, _NO_LONGER = _compile(OFFERED), _compile(UP_TO_THE_CUSTOMER), _compile(NO_LONGER)
_SOUNDS_LIKE_A_DENIAL = _compile(SOUNDS_LIKE_A_DENIAL)

_DECORATION = re.compile(r"[*_~`#>\u200b-\u200f\u2060\ufeff]+|^ ?(?:[-+•]|\d{1,3}[.)]) ", re.MULTILINE)
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "«": '"', "»": '"', "\u00a0": " ", "\u202f": " "})
_TITLE = re.compile(r"\b(dra?|sra?|mrs?|ms|ud|uds|prof)\.", re.IGNORECASE)
_HALF_DAY = re.compile(r"\b([ap])\. ?m\.", re.IGNORECASE)
_SOFT_BREAK = re.compile(r"(?<![.!?:;\s])[ \t]*\n(?=[a-zà-ÿ])")
_SPACES = re.compile(r"[^\S\n]+")
_SENTENCE_END = re.compile(r"[!?]+|[.…;]+(?=[\s\"')\]]|$)|\n|(?=[¿¡])")
_CLAUSE_END = re.compile(
    r"[,:()–—•|\"¡¿]| - | (?:and|but|so|then|y|e|pero|mas|porem|asi que|entao|aunque|because|porque) |[\u2190-\U0010ffff]"
)
_COMMA = re.compile(r"[,:()–—]| - ")
_COLON = re.compile(r":(?!\d)")
_TELLS_NOW = re.compile(
    r" (?:a voce )?(?:que|de que|para (?:recordar|lembrar|avisar|decir|dizer|informar|confirmar|contar))"
)
_QUOTATION = re.compile(r'(?<=[^\s"\d])( ?)"[^"\n]{1,300}"|"[^"\n.!?]{1,300}"(?= [^\W\d_]{2})')

_CLOCK = re.compile(
    r"\b(?P<led>(?:at|by|around|las?|as|until) )?(?P<hour>\d{1,2})(?::(?P<minute>\d\d)(?::\d\d)?)?(?P<h>h(?:oras?|s)?)? ?(?:(?P<half>[ap])m)?\b"
)
_WAIT = re.compile(r"\b(\d{1,3}) ?(min|hour|hora)")
_VERY_SOON = re.compile(
    r"\b(?:soon|shortly|moments?|seconds?|still|on it|working on|pronto|enseguida|momento|segundos?|en cuanto|apenas|aun"
    r"|todavia|en ello|breve|instantes?|assim que|ainda|logo|nisso)\b"
)
_CONTENT_WORD = re.compile(r"[^\W\d_]{3,}")
_EVERYDAY_WORD = re.compile(
    # What any promise may say, by its beginning, and words that say nothing.
    r"(?:remind|reminder|notif|alert|let|tell|check|call|send|message|text|write|follow|contact|update|answer|book|schedul|appoint"
    r"|record|recuerd|avis|dec|dig|llam|escrib|envi|mand|respon|respu|contest|revis|verif|consult|agend|program|cita|prometo"
    r"|lembr|diz|fal|lig|cham|escrev|retorn|confir|inform|recib|receb|tomorrow|today|tonight|later|soon|monday|tuesday|wednesday"
    r"|thursday|friday|saturday|sunday|manana|hoy|luego|pronto|lunes|martes|miercoles|jueves|viernes|sabado|domingo|amanha|hoje"
    r"|depois|segunda|terca|quarta|quinta|sexta|feira|minut|hour|hora|day|dia|week|semana|month|mes|momento"
    r"|(?:the|and|for|you|your|will|are|was|about|with|that|this|when|what|from|here|have|has|ask|asked|set|get|them|they|then"
    r"|our|per|his|her|its|please|customer|que|los|las|una|uno|unos|unas|con|por|para|del|sus|tus|usted|ustedes|cuando|este|esta"
    r"|esto|ese|esa|pediste|hasta|sobre|como|cliente|favor|voce|com|uma|dos|das|nos|nas|seu|sua|quando|isso|isto|esse|essa|pra"
    r"|aos|mas|pelo|pela|ate|vou|voy|vai|going|can|not|nao|sim|yes|all|any|it's|i'll|one|mas|muy|muito|tem|tiene|ter)$)"
)

_REACH = 240
"""How many characters before and after a promise are read for an excuse."""


def promises_to_return(text: str, *, bookings_count: bool = True) -> bool:
    """Tell whether a reply, in English, Spanish or Portuguese, promises to come back or says that something is booked.

    Without `bookings_count` only what the house will do counts: where nothing can be booked, "it is booked" is a report.
    """
    return any(_promises(sentence, is_question, bookings_count) for sentence, is_question in _sentences(text))


def names(text: str, about: str, at: datetime, now: datetime) -> bool:
    """Tell whether a reply names something booked: by a word of what it is about, or by its time; `at` is local.

    Without am or pm, 9 is nine in the morning and nine in the evening.
    """
    said = fold(_HALF_DAY.sub(r"\1m", text))
    left = at - now
    return (
        not _content(about).isdisjoint(_content(text))
        or any(_is_time(match, at) for match in _CLOCK.finditer(said))
        or any(
            abs(timedelta(minutes=int(match[1]) * (1 if match[2] == "min" else 60)) - left) <= timedelta(minutes=2)
            for match in _WAIT.finditer(said)
        )
        or (left < timedelta(minutes=2) and bool(_VERY_SOON.search(said)))
    )


def _content(text: str) -> set[str]:
    return {word.rstrip("s")[:5] for word in _CONTENT_WORD.findall(fold(text)) if not _EVERYDAY_WORD.match(word)}


def _is_time(match: re.Match[str], at: datetime) -> bool:
    hour, minute, half = int(match["hour"]), int(match["minute"] or 0), match["half"]
    is_a_time = match["led"] or match["minute"] or match["h"] or half
    hours = {hour % 12 + (12 if half == "p" else 0)} if half else {hour, hour + 12} if hour < 12 else {hour, hour - 12}
    return bool(is_a_time) and minute == at.minute and at.hour in hours


def _sentences(text: str) -> Iterator[tuple[str, bool]]:
    plain = unicodedata.normalize("NFC", text).translate(_QUOTES)
    plain = _HALF_DAY.sub(r"\1m", _TITLE.sub(r"\1", _DECORATION.sub("", _SPACES.sub(" ", plain))))
    plain = _QUOTATION.sub(r"\1", _SOFT_BREAK.sub(" ", plain)).lower()
    start = 0
    for end in _SENTENCE_END.finditer(plain):
        yield plain[start : end.start()].strip(), "?" in end.group()
        start = end.end()
    yield plain[start:].strip(), False


def _promises(spoken: str, is_question: bool, bookings_count: bool) -> bool:
    is_question_throughout = spoken.startswith("¿") or (is_question and bool(_OFFERED.match(spoken)))
    if not spoken or is_question_throughout:
        return False
    spoken = _SOUNDS_LIKE_A_DENIAL.sub(",", _DONE_BY_ANOTHER.sub(",", spoken))
    folded = _SOUNDS_LIKE_A_DENIAL.sub(",", fold(spoken))
    asked_from = _start_of_the_question(folded) if is_question else len(folded)
    return any(
        not _is_action_excused(folded, match, asked_from)
        for pattern, counts in ((_ACTIONS, None), (_DEFERRED, _is_for_later), (_OTHERS, _is_done_by_the_house))
        for match in pattern.finditer(folded)
        if counts is None or counts(folded, match)
    ) or any(
        not _is_booking_excused(said, match, asked_from)
        for said, pattern in ((folded, _BOOKINGS), (spoken, _BOOKINGS_BY_ACCENT))
        if bookings_count
        for match in pattern.finditer(said)
    )


def _is_for_later(sentence: str, match: re.Match[str]) -> bool:
    """A time counts before and after, except in what is told now: "I'll tell you: we open at 9", "te cuento que mañana abrimos"."""
    before = sentence[max(0, match.start() - _REACH) : match.start()]
    after = sentence[match.end() : match.end() + _REACH]
    colon = _COLON.search(after)
    if colon:
        before, after = "", after[: colon.start()]
    if _TELLS_NOW.match(after):
        after = ""
    return bool(_LATER.search(before + match.group() + after))


def _is_done_by_the_house(sentence: str, match: re.Match[str]) -> bool:
    """Who does it may stand before an "and": "my colleague looks into it and will call you"."""
    before = _COMMA.split(sentence[max(0, match.start() - _REACH) : match.start()])[-1]
    is_the_house = _HOUSE.search(before) or _HOUSE.search(_clause_after(sentence, match.end()))
    return bool(is_the_house) and not _DENIED_BOOKING.search(before + match.group())


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
