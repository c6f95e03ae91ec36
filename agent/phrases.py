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
        "with_a_person": "I am passing this on: a person at {business} will answer you here.",
        "booked": "Booked: {about}. {local_time} ({time_zone})",
        "start": "Hello, this is the assistant of {business}. {help}",
        "help": (
            "Write in your own words: I answer here, and I can come back to you later, at a time you name. Commands:\n"
            "- /pending: what is booked here\n- /cancel and a number: cancel that one\n- /stop: receive no more messages\n"
            "- /start: receive messages again"
        ),
        "pending": "Booked here:\n{items}\nTo cancel one, write /cancel and its number.",
        "pending_item": "- {id}: {about}. {local_time} ({time_zone})",
        "pending_again": "- {id}: {about}. {rhythm}; next {local_time} ({time_zone})",
        "nothing_pending": "Nothing is booked here.",
        "cancelled": "Cancelled: {about}. {local_time} ({time_zone})",
        "cancel_raced": "This is being done just now and may still reach you: {about}. {local_time} ({time_zone})",
        "not_pending": "Nothing with the number {id} is booked here. See /pending.",
        "command_start": "Receive messages again",
        "command_help": "What I can do",
        "command_pending": "What is booked here",
        "command_cancel": "Cancel by number: /cancel 12",
        "command_stop": "Receive no more messages",
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
        "with_a_person": "Le paso con una persona de {business}, que le responderá aquí.",
        "booked": "Programado: {about}. {local_time} ({time_zone})",
        "start": "Hola, soy el asistente de {business}. {help}",
        "help": (
            "Escriba con sus propias palabras: respondo aquí, y puedo volver más tarde, a la hora que usted diga. Comandos:\n"
            "- /pending: lo que está programado aquí\n- /cancel y un número: cancelar ese\n- /stop: no recibir más mensajes\n"
            "- /start: volver a recibir mensajes"
        ),
        "pending": "Programado aquí:\n{items}\nPara cancelar uno, escriba /cancel y su número.",
        "pending_item": "- {id}: {about}. {local_time} ({time_zone})",
        "pending_again": "- {id}: {about}. {rhythm}; próxima vez: {local_time} ({time_zone})",
        "nothing_pending": "Aquí no hay nada programado.",
        "cancelled": "Cancelado: {about}. {local_time} ({time_zone})",
        "cancel_raced": "Esto se está haciendo ahora mismo y quizá le llegue: {about}. {local_time} ({time_zone})",
        "not_pending": "Aquí no hay nada programado con el número {id}. Vea /pending.",
        "command_start": "Volver a recibir mensajes",
        "command_help": "Lo que puedo hacer",
        "command_pending": "Lo que está programado aquí",
        "command_cancel": "Cancelar por número: /cancel 12",
        "command_stop": "No recibir más mensajes",
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
        "with_a_person": "Vou passar a conversa para uma pessoa da {business}, que vai responder aqui.",
        "booked": "Agendado: {about}. {local_time} ({time_zone})",
        "start": "Olá, sou o assistente de {business}. {help}",
        "help": (
            "Escreva com as suas palavras: respondo aqui, e posso voltar mais tarde, na hora que você disser. Comandos:\n"
            "- /pending: o que está agendado aqui\n- /cancel e um número: cancelar esse\n- /stop: não receber mais mensagens\n"
            "- /start: voltar a receber mensagens"
        ),
        "pending": "Agendado aqui:\n{items}\nPara cancelar um, escreva /cancel e o número.",
        "pending_item": "- {id}: {about}. {local_time} ({time_zone})",
        "pending_again": "- {id}: {about}. {rhythm}; próxima vez: {local_time} ({time_zone})",
        "nothing_pending": "Não há nada agendado aqui.",
        "cancelled": "Cancelado: {about}. {local_time} ({time_zone})",
        "cancel_raced": "Isto está sendo feito agora mesmo e talvez ainda chegue: {about}. {local_time} ({time_zone})",
        "not_pending": "Não há nada agendado aqui com o número {id}. Veja /pending.",
        "command_start": "Voltar a receber mensagens",
        "command_help": "O que posso fazer",
        "command_pending": "O que está agendado aqui",
        "command_cancel": "Cancelar por número: /cancel 12",
        "command_stop": "Não receber mais mensagens",
        "not_booked": "Não consegui agendar nada para depois. Diga de novo o que deseja e para quando, por favor.",
    },
}


def phrase(name: str, language: str, **words: str) -> str:
    """Return a sentence in a language (English where there is none in it)."""
    return _PHRASES.get(language, _PHRASES["en"])[name].format(**words)
