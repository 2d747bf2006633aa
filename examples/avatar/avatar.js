#!/usr/bin/env node
// One image from thumbcached, in JavaScript, with node-redis 4 (apt install nodejs node-redis, or npm install redis@4).
//
//   node avatar.js USER PROFILE COPY [IMAGE]
//
// Logs USER in, stores the file IMAGE, if given, writes the image of PROFILE to the file COPY, logs USER out, and
// verifies the logout. Without IMAGE, the daemon downloads the image. THUMBCACHED_SOCKET names the daemon's socket.
// Exit status: 0 success, 4 no image, 2 invalid usage, 1 any other error.
'use strict';
const fs = require('fs');
const { createClient } = require('redis');

async function run(user, profile, copy, imageFile) {
  const path = process.env.THUMBCACHED_SOCKET || '/run/thumbcached/thumbcached.sock';
  // Without a strategy, the client would retry forever if there is no daemon.
  const daemon = createClient({ socket: { path, reconnectStrategy: () => new Error(`no daemon at ${path}`) } });
  // The client also reports errors as events, which would end the program without a listener.
  daemon.on('error', () => {});
  await daemon.connect();
  // sendCommand sends any command. Replies must be buffers, since an image is not text.
  const ask = (...words) => daemon.sendCommand(words, { returnBuffers: true });
  let image;
  let receipt;
  try {
    // The cache of this user exists until the logout.
    await ask('LOGIN', user);
    try {
      if (imageFile) await ask('PUT', user, profile, fs.readFileSync(imageFile));
      // The image, or null.
      image = await ask('GET', user, profile);
      if (image !== null) {
        fs.writeFileSync(copy, image);
        console.log(`${image.length} bytes written to ${copy}`);
      }
    } finally {
      // Ends the cache even after an error.
      receipt = await ask('LOGOUT', user);
    }
    // The receipt, an array of names and values, confirms that nothing can be read any more.
    const place = receipt.findIndex((word) => String(word) === 'users');
    console.log(`caches ended: ${receipt[place + 1]}`);

    const again = await ask('GET', user, profile).catch((error) => error.message);
    if (!String(again).startsWith('NOLOGIN')) throw new Error('the cache still exists');
    console.log('after logout: NOLOGIN');
  } finally {
    await daemon.disconnect();
  }
  return image !== null;
}

const words = process.argv.slice(2);
if (words.length !== 3 && words.length !== 4) {
  console.error('usage: avatar.js USER PROFILE COPY [IMAGE]');
  process.exit(2);
}
run(...words).then((found) => {
  if (!found) console.error('no image');
  process.exitCode = found ? 0 : 4;
}, (error) => {
  console.error(`avatar.js: ${error.message}`);
  process.exitCode = 1;
});
