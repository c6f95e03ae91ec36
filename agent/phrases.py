"""What is said when no model can say it: a few sentences in each language."""

_PHRASES = {
    "en": {
        "customer": "there",
        "opted_out": "Done: {business} will not write to you any more. To hear from us again, write START.",
        "opted_in": "Welcome back: {business} may write to you again.",
        "reminder": "Reminder: {about}",
        "work_failed": "I said I would come back to you about this, but I could not finish it: {about}",
        "no_answer": "Sorry, I could not answer just now. Please write again in a moment.",
        "not_finished": "I could not finish my answer. If you asked for anything else, please write it again.",
        "booked": "Booked: {about}. {local_time} ({time_zone})",
        "not_booked": "I have not been able to book anything for later. Please tell me again what you would like, and when.",
    },
    "es": {
        "customer": "cliente",
        "opted_out": "Hecho: {business} no le escribirá más. Para volver a recibir mensajes, escriba ALTA.",
        "opted_in": "Bienvenido de nuevo: {business} puede volver a escribirle.",
        "reminder": "Recordatorio: {about}",
        "work_failed": "Le dije que volvería con esto, pero no he podido terminarlo: {about}",
        "no_answer": "Lo siento, ahora mismo no he podido responder. Escriba de nuevo en un momento, por favor.",
        "not_finished": "No he podido terminar la respuesta. Si pidió algo más, escríbalo de nuevo, por favor.",
        "booked": "Programado: {about}. {local_time} ({time_zone})",
        "not_booked": "No he podido programar nada para más tarde. Dígame otra vez qué desea y para cuándo, por favor.",
    },
    "pt": {
        "customer": "cliente",
        "opted_out": "Feito: {business} não vai mais lhe escrever. Para voltar a receber mensagens, escreva INICIAR.",
        "opted_in": "Que bom ter você de volta: {business} pode voltar a lhe escrever.",
        "reminder": "Lembrete: {about}",
        "work_failed": "Eu disse que voltaria com isto, mas não consegui terminar: {about}",
        "no_answer": "Desculpe, não consegui responder agora. Escreva de novo daqui a pouco, por favor.",
        "not_finished": "Não consegui terminar a resposta. Se pediu mais alguma coisa, escreva de novo, por favor.",
        "booked": "Agendado: {about}. {local_time} ({time_zone})",
        "not_booked": "Não consegui agendar nada para depois. Diga de novo o que deseja e para quando, por favor.",
    },
}


def phrase(name: str, language: str, **words: str) -> str:
    """Return a sentence in a language (English where there is none in it)."""
    return _PHRASES.get(language, _PHRASES["en"])[name].format(**words)
