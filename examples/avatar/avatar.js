#!/usr/bin/env node
// One picture from thumbcached, in JavaScript, with node-redis 4 (apt install nodejs node-redis, or npm install redis@4).
//
//   node avatar.js USER PROFILE COPY [PICTURE]
//
// Logs USER in, writes the picture of PROFILE to the file COPY, logs USER out, and asks once more. The picture is
// the file PICTURE if there is one, otherwise the daemon downloads it. THUMBCACHED_SOCKET names the daemon's socket.
// The exit status is 0 when all went well, 4 if there is no picture, 2 for a wrong command line, else 1.
'use strict';
const fs = require('fs');
const { createClient } = require('redis');

async function run(user, profile, copy, picture) {
  const path = process.env.THUMBCACHED_SOCKET || '/run/thumbcached/thumbcached.sock';
  // Without a strategy the client would try for ever to reach a daemon that is not there.
  const daemon = createClient({ socket: { path, reconnectStrategy: () => new Error(`no daemon at ${path}`) } });
  // The client reports errors here as well; without a listener they would end the program.
  daemon.on('error', () => {});
  await daemon.connect();
  // sendCommand sends any command, word by word. Replies are to be buffers: an image is no text.
  const ask = (...words) => daemon.sendCommand(words, { returnBuffers: true });
  let image;
  let receipt;
  try {
    // From here to the log-out there is a cache of this user.
    await ask('LOGIN', user);
    try {
      if (picture) await ask('PUT', user, profile, fs.readFileSync(picture));
      // The image itself, or null.
      image = await ask('GET', user, profile);
      if (image !== null) {
        fs.writeFileSync(copy, image);
        console.log(`${image.length} bytes written to ${copy}`);
      }
    } finally {
      // Whatever went wrong before: this ends the cache.
      receipt = await ask('LOGOUT', user);
    }
    // The receipt, an array of names and values in turn, says that nothing can be read any more.
    const place = receipt.findIndex((word) => String(word) === 'users');
    console.log(`caches ended: ${receipt[place + 1]}`);

    const again = await ask('GET', user, profile).catch((error) => error.message);
    if (!String(again).startsWith('NOLOGIN')) throw new Error('the cache is still there');
    console.log('asked again: NOLOGIN');
  } finally {
    await daemon.disconnect();
  }
  return image !== null;
}

const words = process.argv.slice(2);
if (words.length !== 3 && words.length !== 4) {
  console.error('usage: avatar.js USER PROFILE COPY [PICTURE]');
  process.exit(2);
}
run(...words).then((found) => {
  if (!found) console.error('there is no picture');
  process.exitCode = found ? 0 : 4;
}, (error) => {
  console.error(`avatar.js: ${error.message}`);
  process.exitCode = 1;
});
