"""The words with which customers ask for things in English, Spanish and Portuguese, as patterns over folded text."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent.language import Language


@dataclass(frozen=True, slots=True)
class RequestWords:
    """What one language says when it asks."""

    remind: re.Pattern[str]
    """Asks for a reminder, with or without a time."""
    tell: re.Pattern[str]
    """Asks for a reminder only when a time stands beside it."""
    work: re.Pattern[str]
    """Begins a piece of work…"""
    work_tail: re.Pattern[str]
    """…of which the customer wants to hear."""
    cancel: re.Pattern[str]
    pending: re.Pattern[str]
    hello: re.Pattern[str]
    politeness: re.Pattern[str]
    """Nothing but polite words, or nothing at all."""
    lead: re.Pattern[str]
    """What is left of the request before the action: "to", "que"."""
    trail: re.Pattern[str]


NOISE = frozenset(
    """
    the a an to of for my that this it one about with and please reminder reminders follow up followup number all everything
    both thing at on in me
    el la los las lo un una de del que mi mis por favor para a al con y ese esa eso este esta recordatorio recordatorios aviso
    numero todo todos toda todas ambos ambas pendiente pendientes
    o os as um uma do da dos das meu minha e com no na esse essa isso isto lembrete lembretes tudo pra
    """.replace("\n", " ").split(" ")
)


def _words(
    *,
    polite: str,
    remind: str,
    tell: str,
    work: str,
    work_tail: str,
    cancel: str,
    pending: str,
    hello: str,
    lead: str,
    trail: str,
) -> RequestWords:
    gap = r"[\s,.;:!?¡¿–—-]{1,20}"
    politeness = rf"[\s,.;:!?¡¿–—-]{{0,20}}(?:(?:{polite})(?![^\W_]){gap}?){{0,6}}"
    return RequestWords(
        remind=re.compile(remind),
        tell=re.compile(tell),
        work=re.compile(rf"{politeness}(?:{work})\b"),
        work_tail=re.compile(work_tail),
        cancel=re.compile(rf"{politeness}(?:{cancel})"),
        pending=re.compile(pending),
        hello=re.compile(rf"[\s,.;:!?¡¿]{{0,20}}(?:{hello})\b"),
        politeness=re.compile(politeness),
        lead=re.compile(rf"(?:{gap}|(?:{polite}|{lead})(?=[\s,.;:!?]|$)){{1,12}}"),
        trail=re.compile(rf"(?:{gap}|(?<![^\W_])(?:{trail})(?![^\W_])){{1,12}}$"),
    )


WORDS: Mapping[Language, RequestWords] = {
    "en": _words(
        polite=(
            r"please|pls|plz|hey|hi|hello|ok|okay|so|well|also|and|then|thanks|just|now|(?:can|could|would|will) (?:you|u)|i (?:want|need)(?: you)? to"
            r"|i(?:'d| would) like(?: you)? to|you|kindly"
        ),
        remind=(
            r"\b(?:remind|notify|alert|ping|nudge) (?:me|us)\b|(?:\bi(?:'d| would| want)(?: like)? )?\bto be reminded\b"
            r"|\b(?:set|create|make|add|schedule|book|give|put)(?: up)? (?:me )?(?:a|an|another) (?:reminder|alarm|alert|follow-up)\b"
            r"|\b(?:don't|do not) let me forget\b|^\W{0,9}(?:a )?reminder(?= (?:to|for|at|in|on|that)\b|:)"
        ),
        tell=r"\b(?:tell me|let me know|write (?:to )?me|message me|text me|send me (?:a )?(?:message|note)|wake me(?: up)?|get back to me)\b",
        work=(
            r"check|find out|look up|look into|look for|see|verify|investigate|research|search|ask|confirm|figure out|calculate|compare"
            r"|track|find|review"
        ),
        work_tail=(
            r"[\s,;]{0,3}(?:\b(?:and|then|and then|to)\b )?(?:please )?\b(?:let me know|tell me|get back to me|come back to me|notify me"
            r"|report back|write (?:to )?me|message me|text me|ping me|send me (?:it|the (?:answer|result)))\b"
            r"(?: (?:about it|what you (?:find|found)|the (?:answer|result))\b)?"
            r"(?:,? (?:when|once|as soon as|if)(?: (?:it's|it is|you're|you are|you have|you|that|done|ready|finished|know|the|an|answer"
            r"|result|is|here|found|it|have|something|anything)){1,6}\b)?"
        ),
        cancel=(
            r"(?:cancel|delete|remove|drop|scrap|unschedule|undo|call off|(?:forget(?: about)?|stop)(?= (?:the|my|all|that|this)\b))"
            r"\b|(?:don't|do not|stop) remind(?:ing)? me\b"
        ),
        pending=(
            r"\b(?:what|which|how many|anything|something|any)\b[^\n]{0,40}\b(?:pending|scheduled|booked|planned|coming up|reminders?"
            r"|follow-?ups?)\b|\bwhat do you have (?:for|on) me\b"
            r"|\b(?:list|show|see|display|view|check)\b[^\n]{0,20}\b(?:reminders|follow-?ups|pending|bookings|scheduled)\b"
            r"|\bdo i have\b[^\n]{0,20}\b(?:pending|scheduled|reminders?)\b|^\W{0,9}(?:my |the |all )*(?:reminders|pending|list)\W{0,9}$"
        ),
        hello=r"hi|hello|hey|good (?:morning|afternoon|evening|day)|greetings",
        lead=r"to|that|about|of|for|i need|i have|me|us",
        trail=r"please|thanks|thank you|ok|okay|and|then",
    ),
    "es": _words(
        polite=(
            r"por favor|porfa|porfavor|oye|oiga|hola|buen(?:os|as)? (?:dias?|tardes?|noches?)|ok|vale|bueno|y|tambien|gracias|ahora"
            r"|(?:me )?(?:puedes|puede|podrias|podria)|(?:quiero|necesito|quisiera) que|quiero|necesito|solo"
        ),
        remind=(
            r"\b(?:recuerdam(?:e|elo)|recuerdem(?:e|elo)|recuerda(?:nos)|recordam(?:e|elo)|recordarm(?:e|elo)|recordarnos|acuerdame"
            r"|hazme acordar|avisam(?:e|elo)|aviseme|avisanos|avisarm(?:e|elo)|notificame|notifiqueme|alertame)\b"
            r"|\b(?:me|nos) (?:lo )?(?:recuerdas|recuerda|recuerde|recuerdes|avisas|avisa|avise|avises|notificas|notifica)\b"
            r"|\bme (?:puedes|puede|podrias|podria) (?:recordar|avisar)\b"
            r"|\b(?:pon|ponme|poner|crea|creame|crear|agenda|agendame|agendar|programa|programame|programar|haz|hazme|deja|dejame)"
            r" (?:un|otro) (?:recordatorio|aviso)\b|\b(?:pon|ponme|programa) una (?:alarma|alerta)\b"
            r"|\bque no se me olvide\b|\bno me dejes olvidar\b|^\W{0,9}(?:un )?recordatorio(?= (?:para|de|que|a|en|el)\b|:)"
        ),
        tell=r"\b(?:dime|digame|cuentame|escribeme|escribame|mandame un mensaje|enviame un mensaje|despiertame)\b",
        work=(
            r"averigua|averigue|averiguar|averiguame|verifica|verifique|verificar|revisa|revise|revisar|consulta|consulte|consultar"
            r"|busca|busque|buscar|comprueba|compruebe|comprobar|mira|mire|mirar|investiga|investigue|investigar|pregunta|pregunte"
            r"|preguntar|confirma|confirme|checa|chequea|calcula|compara|fijate"
        ),
        work_tail=(
            r"[\s,;]{0,3}(?:\b(?:y|y luego|luego)\b )?(?:por favor )?\b(?:me (?:lo )?(?:avisas?|avise|avisar|dices?|diga|digas|cuentas?|informas?"
            r"|escribes?|respondes?|confirmas?)|avisam(?:e|elo)|aviseme|avisarme|decirme|dim(?:e|elo)|digam(?:e|elo)|cuentam(?:e|elo)|informame|informeme"
            r"|escribeme|escribame|confirmame|respondeme)\b"
            r"(?:,? (?:cuando|en cuanto|apenas|si|lo que|que|el|la)(?: (?:lo|este|esta|tengas|tenga|sepas|sepa|listo|lista|termines|termine"
            r"|encuentres|encuentras|respuesta|resultado|una|la|el|haya|algo|hay)){0,5}\b)?"
        ),
        cancel=(
            r"(?:cancela(?:r|me|lo|la|los|las|rlo|rla)?|cancele|borra(?:r|lo|la)?|borre|elimina(?:r|lo|la)?|elimine|quita(?:r|lo|la)?"
            r"|quite|anula(?:r|lo|la)?|anule|(?:olvida(?:te)?|olvide)(?: de)?(?= (?:el|la|lo|los|mi|mis|todo)\b))\b|(?:ya )?no me (?:recuerdes|avises|lo recuerdes)\b"
        ),
        pending=(
            r"\b(?:que|cual|cuales|cuantos|cuantas|algo|algun|alguna|mis)\b[^\n]{0,40}\b(?:pendientes?|recordatorios?|programad[oa]s?"
            r"|agendad[oa]s?)\b|\b(?:lista|listame|muestra|muestrame|ver|dame|ensename|mostrar|listar)\b[^\n]{0,20}"
            r"\b(?:recordatorios|pendientes?)\b|\b(?:tengo|hay|tienes)\b[^\n]{0,20}\b(?:pendientes?|programad[oa]s?|recordatorios?)\b"
            r"|^\W{0,9}(?:mis |los )?(?:recordatorios|pendientes?)\W{0,9}$|\bque tienes para mi\b"
        ),
        hello=r"hola|buen(?:os|as)? (?:dias?|tardes?|noches?)|buenas|saludos",
        lead=r"que|de que|de|sobre|para|a|acerca de",
        trail=r"por favor|porfa|porfavor|gracias|ok|vale|y",
    ),
    "pt": _words(
        polite=(
            r"por favor|por gentileza|oi|ola|bom dia|boa (?:tarde|noite)|ok|e|tambem|obrigad[oa]|agora|(?:voce )?(?:pode|poderia|consegue)"
            r"|(?:quero|preciso|queria) que(?: voce)?|quero|preciso|so|ei"
        ),
        remind=(
            r"\b(?:me|nos) (?:lembr(?:a|e|ar|es)|avis(?:a|e|ar|es)|notifi(?:ca|que|car)|alert(?:a|e|ar))\b"
            r"|\b(?:lembr(?:a|e|ar)|avis(?:a|e|ar)|notifi(?:ca|que|car)|alert(?:a|e|ar))-(?:me|nos)\b|\blembr(?:a|e) eu\b"
            r"|\b(?:cri(?:a|e|ar)|coloc(?:a|ar)|coloque|bot(?:a|e|ar)|agend(?:a|e|ar)|program(?:a|e|ar)|faz|faca|fazer|poe|ponha|por"
            r"|marc(?:a|ar)|marque|defin(?:a|e|ir)) (?:um|outro) (?:lembrete|aviso|alarme)\b"
            r"|\bnao (?:me )?deix(?:a|e)(?: eu)? esquecer\b|^\W{0,9}(?:um )?lembrete(?= (?:para|de|que|as|em|no|na)\b|:)"
        ),
        tell=r"\b(?:me (?:diga|diz|fala|fale|conta|conte|escreve|escreva|acorda|acorde)|diga-me|escreva-me|acorde-me|me mand(?:a|e) (?:uma )?mensagem)\b",
        work=(
            r"verifi(?:ca|que|car)|confir(?:a|e|ir)|confere|descobr(?:e|ir)|descubra|vej?a|ve se|ver|pesquis(?:a|e|ar)|consult(?:a|e|ar)"
            r"|averigu(?:a|e|ar)|chec(?:a|ar)|cheque|procur(?:a|e|ar)|investig(?:a|ue|ar)|pergunt(?:a|e|ar)|confirm(?:a|e|ar)|busc(?:a|ar)"
            r"|busque|calcul(?:a|e)|compar(?:a|e)|olh(?:a|e)"
        ),
        work_tail=(
            r"[\s,;]{0,3}(?:\b(?:e|e depois|depois)\b )?(?:por favor )?\b(?:me (?:avisar?|avise|diz|diga|dizer|falar?|fale|contar?|conte|informar?|informe"
            r"|responda|responde|retorna|retorne|confirma|confirme|escreve|escreva)|avis[ae]-me|diga-me|informe-me|conte-me|fale-me)\b"
            r"(?:,? (?:quando|assim que|se|o que|o|a)(?: (?:estiver|souber|tiver|pronto|pronta|terminar|encontrar|achar|resposta|resultado"
            r"|uma|a|o|houver|algo|for)){0,5}\b)?"
        ),
        cancel=(
            r"(?:cancel(?:a|e|ar|a-l[oa])|apag(?:a|ar|ue)|remov(?:e|a|er)|exclu(?:i|a|ir)|delet(?:a|e|ar)|esquec(?:e|a|er)(?= (?:o|a|d[oa]|meu|minha|tudo)\b)"
            r"|desmarc(?:a|ar)|desmarque|anul(?:a|e|ar)|tir(?:a|e|ar))\b|nao (?:precisa )?(?:mais )?me (?:lembre|lembrar|avise|avisar)\b"
        ),
        pending=(
            r"\b(?:o que|que|qual|quais|quantos|quantas|algo|algum|alguma|meus)\b[^\n]{0,40}\b(?:pendentes?|pendencias?|lembretes?"
            r"|agendad[oa]s?|programad[oa]s?|marcad[oa]s?)\b|\b(?:liste|lista|listar|mostre|mostra|mostrar|ver|veja|me da)\b[^\n]{0,20}"
            r"\b(?:lembretes|pendentes?|pendencias)\b|\b(?:tenho|ha|tem)\b[^\n]{0,20}\b(?:pendentes?|pendencias?|agendad[oa]s?|lembretes?)\b"
            r"|^\W{0,9}(?:meus |os )?(?:lembretes|pendentes?|pendencias)\W{0,9}$|\bo que voce tem para mim\b"
        ),
        hello=r"oi|ola|bom dia|boa (?:tarde|noite)",
        lead=r"que|de que|de|do|da|dos|das|sobre|para|pra|a|ao|o|me|eu",
        trail=r"por favor|obrigad[oa]|ok|e",
    ),
}
