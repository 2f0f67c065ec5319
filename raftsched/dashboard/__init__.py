"""Serve the dashboard: pages for people under `/ui`, rendered on the server, beside the API of each node.

The dashboard is a user of the API like any other. A page reads and changes through `raftsched.client`, with the token of
its reader, over a private channel to this node's own API (`channel`). So rights, tenants, limits, forwarding to the
leader and errors are those of the API. There is no second way to the state.

A request passes through these modules:

    app         routes, headers, and the answer to every error
    session     who reads: the token in the cookie, or the client's certificate
    csrf        whether a form comes from one of our own pages
    view        what a page gets: the client, the caller, the form, the time
    pages/      one module for each noun
    rendering   Jinja2 with `templates/`; `formats` has the filters
    assets      `static/` under names that contain a hash
    live        tells an open page that it has changed

To add a page:

1. Write `pages/<noun>.py` with a tuple `PAGES` of `Page`: path below `/ui`, access, `show`, and `act` if it has a form.
   `show` returns a `Rendered`, `act` a `Redirect`. Read through `view.client` only, page by page.
2. Write `templates/<noun>/<page>.html`. It extends `layout` and fills the blocks `title` and `main`. An element with
   `id` and `data-live` is replaced when something changes.
3. Add the module to `PAGES` in `pages/__init__.py`. A page with `nav` is in the navigation, in the order of that table.
4. Add its path, and the name of its picture, to `PATHS` in `tests/dashboard/scene.py`; that checks the rules for it.

Rules: no inline script or style, since the content security policy forbids them. Every form has `{{ csrf_field() }}`.
Buttons for changes are inside `{% if may("submit") %}` with the access that the API asks for. An action that can't be
undone shows a page with what would change before it acts. On a narrow screen cells of the class `wide` are hidden, and a
table of the class `rows` becomes blocks, each with its `main` cell first. Everything works without JavaScript,
except for updates.
"""
