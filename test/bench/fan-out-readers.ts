/**
 * Many WebSocket clients in one process, each a raw socket whose bytes are counted and hardly looked at. Says `ready` once
 * all have been answered; on SIGUSR2 how many bytes and which frame size they have got since the last time.
 */
const options = JSON.parse(process.argv[2]!) as {
  url: string;
  count: number;
  /** Taken by turns; none for a server that asks for no key. */
  keys?: readonly string[];
  /** Sent by each once it is open; its answer is waited for. */
  hello?: string;
  /** So many of them never read again. */
  deaf?: number;
};
const { hostname, port } = new URL(options.url);
const { keys = [], deaf = 0 } = options;
const protocolsOf = (key: string | undefined) =>
  key === undefined
    ? ""
    : `Sec-WebSocket-Protocol: svc.v1, svc.auth.bearer.${Buffer.from(key).toString("base64url")}\r\n`;
const upgradeOf = (key: string | undefined) =>
  `GET /ws HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n${protocolsOf(key)}\r\n`;

/** A masked text frame, with a mask of zeros. */
function frameOf(text: string): Uint8Array {
  const body = Buffer.from(text);
  const head =
    body.length < 126
      ? Buffer.from([0x81, 0x80 | body.length, 0, 0, 0, 0])
      : Buffer.from([0x81, 0xfe, body.length >> 8, body.length & 255, 0, 0, 0, 0]);
  return Buffer.concat([head, body]);
}

/** Pings go unread, so every reader says by itself that it lives: servers close who is silent for two minutes. */
const pong = new Uint8Array([0x8a, 0x80, 0, 0, 0, 0]);
const aliveEveryMs = 40_000;
const reading: { write(data: Uint8Array): number }[] = [];

let bytes = 0;
let frameBytes = 0;
let answered = 0;
let closed = 0;

const sizeOf = (data: Uint8Array) => {
  const short = data[1]! & 127;
  return short < 126 ? 2 + short : 4 + ((data[2]! << 8) | data[3]!);
};

async function open(place: number): Promise<void> {
  const isDeaf = place < deaf;
  const upgrade = upgradeOf(keys[place % keys.length]);
  await new Promise<void>((ready, failed) => {
    let state: "upgrading" | "greeting" | "reading" = "upgrading";
    Bun.connect({
      hostname,
      port: Number(port),
      socket: {
        open: (socket) => void socket.write(upgrade),
        data(socket, data) {
          if (state === "reading") {
            if (frameBytes === 0) frameBytes = sizeOf(data);
            bytes += data.length;
            return;
          }
          if (state === "upgrading") {
            if (!data.toString("latin1").startsWith("HTTP/1.1 101")) failed(new Error(data.toString()));
            state = options.hello === undefined ? "reading" : "greeting";
            if (options.hello !== undefined) socket.write(frameOf(options.hello));
          } else {
            if (!data.includes('"ok"')) failed(new Error(data.toString()));
            state = "reading";
          }
          if (state === "reading") {
            answered++;
            if (isDeaf) socket.pause();
            else reading.push(socket);
            ready();
          }
        },
        close: () => void closed++,
        error: () => {},
      },
    }).catch(failed);
  });
}

process.on("SIGUSR2", () => {
  console.log(JSON.stringify({ bytes, frameBytes, answered, closed }));
});

const atOnce = 50;
for (let begun = 0; begun < options.count; begun += atOnce)
  await Promise.all(
    Array.from({ length: Math.min(atOnce, options.count - begun) }, (_, at) => open(begun + at)),
  );
setInterval(() => {
  for (const socket of reading) socket.write(pong);
}, aliveEveryMs);
console.log("ready");

export {};
