"""Send e-mail for the jobs `email`, as those of a schedule's notices.

`executor` is the whole of it. `payload` reads what a job asks for, `message` makes the text that is sent, `delivery` talks
to the SMTP server of `settings`. All jobs of an executor have one server and, unless others are allowed, one sender.

Left out: attachments, a signature by DKIM, and delivery to the servers of the recipients. Those are work of the server.
"""
