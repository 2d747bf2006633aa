#!/usr/bin/env python3
"""A window with the contacts of an account, in GTK 4 (apt install python3-gi gir1.2-gtk-4.0 python3-redis).

    contacts.py USER 'NAME <PROFILE>' …

The images come from thumbcached. When USER logs out, here or elsewhere, the window is notified before the logout
completes, and discards all contacts. THUMBCACHED_SOCKET names the daemon's socket. The client is the Python
package in clients/python: PYTHONPATH=clients/python/src.
"""

import email.utils
import sys
import threading

import gi
import thumbcache

gi.require_version("Gdk", "4.0")
gi.require_version("Gtk", "4.0")
from gi.repository import Gdk, GLib, Gtk

STYLE = b"""
row { padding: 9px 16px; }  .name { font-weight: bold; }  .address, .empty { opacity: 0.6; }
.avatar { border-radius: 28px; background: #dfe3e8; }
"""


class Contacts(Gtk.ApplicationWindow):
    def __init__(self, application, user, people):
        """`people` maps profiles to names."""
        super().__init__(application=application, title=user, default_width=400, default_height=540)
        self.user, self.people, self.widgets = user, people, {}
        self.daemon = thumbcache.Client()
        self.button = Gtk.Button(label="Log out")
        self.button.connect("clicked", lambda _: self.daemon.logout(user))
        header = Gtk.HeaderBar(decoration_layout=":close")
        header.pack_start(self.button)
        self.set_titlebar(header)
        self.empty("")
        # Requests may wait for a download, so they run in a thread.
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        """Logs in, shows the images, and processes events until the user is logged out."""
        reason = f"{self.user} is logged out."
        try:
            # No event is missed from here on, so images may be shown. The session ends with the block, and even if this
            # program is killed.
            with self.daemon.events(self.user) as events, self.daemon.logged_in(self.user):
                GLib.idle_add(self.fill)
                self.fetch(self.people)
                for event in events:
                    profiles = [event.profile] if event.profile else list(self.people)
                    if event.kind == "logout":
                        break
                    if event.kind == "purge":
                        GLib.idle_add(self.show_images, dict.fromkeys(profiles))
                    if event.kind in ("purge", "update"):
                        self.fetch(profiles)
        except thumbcache.ThumbcacheError as error:
            # Without events, the cache may have ended, so all images are discarded.
            reason = f"Not connected to thumbcached: {error}"
        GLib.idle_add(self.empty, reason)

    def fetch(self, profiles):
        """Requests images. Missing ones are downloaded in parallel; a logout cancels that."""
        try:
            images = self.daemon.get_many(self.user, *profiles)
            GLib.idle_add(self.show_images, dict(zip(profiles, images)))
        except (thumbcache.NotLoggedInError, thumbcache.RequestCancelledError):
            pass  # Logged out; the event follows.

    # The following methods run in the main thread.

    def fill(self):
        rows = Gtk.ListBox(selection_mode=Gtk.SelectionMode.NONE)
        for profile, name in self.people.items():
            widget = Gtk.Picture(width_request=56, height_request=56, overflow=Gtk.Overflow.HIDDEN)
            widget.add_css_class("avatar")
            words = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, valign=Gtk.Align.CENTER, spacing=2)
            words.append(Gtk.Label(label=name, xalign=0, css_classes=["name"]))
            words.append(Gtk.Label(label=profile, xalign=0, css_classes=["address"]))
            row = Gtk.Box(spacing=14)
            row.append(widget)
            row.append(words)
            rows.append(row)
            self.widgets[profile] = widget
        self.set_child(Gtk.ScrolledWindow(child=rows))
        self.button.set_sensitive(True)

    def show_images(self, images):
        for profile, image in images.items():
            if profile in self.widgets:  # Ignores unknown profiles and late replies.
                is_image = isinstance(image, bytes)  # Otherwise null or an error.
                texture = Gdk.Texture.new_from_bytes(GLib.Bytes.new(image)) if is_image else None
                self.widgets[profile].set_paintable(texture)

    def empty(self, reason):
        self.widgets = {}
        self.set_child(Gtk.Label(label=reason, wrap=True, margin_start=24, margin_end=24, css_classes=["empty"]))
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
