#!/usr/bin/env python3
"""A window with the contacts of an account, in GTK 4 (apt install python3-gi gir1.2-gtk-4.0 python3-redis).

    contacts.py USER 'NAME <PROFILE>' …

The pictures are thumbcached's. When USER logs out, here or elsewhere, the window is told before whoever asked for it
gets the receipt, and forgets everybody. THUMBCACHED_SOCKET names the daemon's socket.
"""

import email.utils
import os
import sys
import threading

import gi
import redis

gi.require_version("Gdk", "4.0")
gi.require_version("Gtk", "4.0")
from gi.repository import Gdk, GLib, Gtk

STYLE = b"""
row { padding: 9px 16px; }  .name { font-weight: bold; }  .address, .nobody { opacity: 0.6; }
.face { border-radius: 28px; background: #dfe3e8; }
"""


class Contacts(Gtk.ApplicationWindow):
    def __init__(self, application, user, people):
        """People: their names, by profile."""
        super().__init__(application=application, title=user, default_width=400, default_height=540)
        self.user, self.people, self.faces = user, people, {}
        self.path = os.environ.get("THUMBCACHED_SOCKET", "/run/thumbcached/thumbcached.sock")
        self.daemon = redis.Redis(unix_socket_path=self.path)
        self.button = Gtk.Button(label="Log out")
        self.button.connect("clicked", lambda _: self.daemon.execute_command("LOGOUT", user))
        header = Gtk.HeaderBar(decoration_layout=":close")
        header.pack_start(self.button)
        self.set_titlebar(header)
        self.empty("")
        # What asks the daemon may have to wait for a download. The window never does.
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        """Logs in and shows the pictures, then does what is said about the account until it is logged out."""
        reason = f"{self.user} is logged out."
        log_in = ("LOGIN", self.user, "SESSION", f"contacts {os.getpid()}", "HOLD")
        try:
            # With HOLD the window's session ends with the connection that began it, however this program ends.
            session = redis.Redis(unix_socket_path=self.path, single_connection_client=True)
            events = self.daemon.pubsub()
            events.subscribe(self.user)
            for event in events.listen():
                # First comes the confirmation. From then on no log-out is missed: now the pictures.
                if event["type"] == "subscribe":
                    session.execute_command(*log_in)
                    GLib.idle_add(self.fill)
                    self.fetch(self.people)
                    continue
                # A word, a number, and the profile where it is about one. The log-in is not news.
                word, _, profile = (event["data"].split(b" ", 2) + [b""])[:3]
                profiles = [profile.decode()] if profile else list(self.people)
                if word == b"logout":
                    break
                if word == b"purge":
                    GLib.idle_add(self.show_faces, dict.fromkeys(profiles))
                if word in (b"purge", b"update"):
                    self.fetch(profiles)
        except redis.RedisError as error:
            # Who is not told any more must take everything for gone.
            reason = f"Not connected to thumbcached: {error}"
        GLib.idle_add(self.empty, reason)

    def fetch(self, profiles):
        """Asks for pictures. Missing ones are downloaded side by side; a log-out meanwhile cancels that."""
        try:
            images = self.daemon.execute_command("MGET", self.user, len(profiles), *profiles)
            GLib.idle_add(self.show_faces, dict(zip(profiles, images)))
        except redis.ResponseError:
            pass  # Logged out: that is said next.

    # What follows is about the window alone, and runs in the main thread.

    def fill(self):
        rows = Gtk.ListBox(selection_mode=Gtk.SelectionMode.NONE)
        for profile, name in self.people.items():
            face = Gtk.Picture(width_request=56, height_request=56, overflow=Gtk.Overflow.HIDDEN, css_classes=["face"])
            words = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, valign=Gtk.Align.CENTER, spacing=2)
            words.append(Gtk.Label(label=name, xalign=0, css_classes=["name"]))
            words.append(Gtk.Label(label=profile, xalign=0, css_classes=["address"]))
            row = Gtk.Box(spacing=14)
            row.append(face)
            row.append(words)
            rows.append(row)
            self.faces[profile] = face
        self.set_child(Gtk.ScrolledWindow(child=rows))
        self.button.set_sensitive(True)

    def show_faces(self, images):
        for profile, image in images.items():
            if profile in self.faces:  # Neither one of nobody here, nor one that comes late.
                is_image = isinstance(image, bytes)  # Else null, or an error.
                texture = Gdk.Texture.new_from_bytes(GLib.Bytes.new(image)) if is_image else None
                self.faces[profile].set_paintable(texture)

    def empty(self, reason):
        self.faces = {}
        self.set_child(Gtk.Label(label=reason, wrap=True, margin_start=24, margin_end=24, css_classes=["nobody"]))
        self.button.set_sensitive(False)


def open_window(application):
    provider = Gtk.CssProvider()
    provider.load_from_data(STYLE)
    display = Gdk.Display.get_default()
    Gtk.StyleContext.add_provider_for_display(display, provider, Gtk.STYLE_PROVIDER_PRIORITY_APPLICATION)
    people = {profile: name for name, profile in map(email.utils.parseaddr, sys.argv[2:])}
    Contacts(application, sys.argv[1], people).present()


if len(sys.argv) < 3:
    sys.exit("usage: contacts.py USER 'NAME <PROFILE>' …")
application = Gtk.Application()
application.connect("activate", open_window)
sys.exit(application.run())
