/**
 * Load over real HTTP, in a process of its own and as cheap as it can be: one raw socket a caller, one request at a time.
 * `bun run load.ts '{"url":…,"key":…,"callers":64,"seconds":5,"rate":0,"event":"bench.run","batch":1}'`; prints one JSON line.
 */
import { connect } from "node:net";

const options = JSON.parse(process.argv[2]!) as {
  url: string;
  key: string;
  callers: number;
  seconds: number;
  /** Requests a second in all; 0 sends the next as soon as the last is answered. */
  rate: number;
  event: string;
  batch: number;
};
const { hostname, port } = new URL(options.url);
const method = options.batch > 1 ? "TriggerBatch" : "Emit";

function request(): string {
  const one = {
    event: options.event,
    data: { at: Date.now(), customer: "c-1042", total: 42.5, note: "bench" },
  };
  const body = JSON.stringify(options.batch > 1 ? { events: Array(options.batch).fill(one) } : one);
  return `POST /svc.v1.SvcService/${method} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer ${options.key}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}

let accepted = 0;
let asked = 0;
let answered = 0;
let refused = 0;
const startedAt = performance.now();
const endAt = startedAt + options.seconds * 1000;
const idle: (() => void)[] = [];

function caller(): Promise<void> {
  return new Promise((done) => {
    const socket = connect(Number(port), hostname);
    socket.setNoDelay(true);
    let wanted = 0;
    const ask = () => {
      asked++;
      socket.write(request());
    };
    const next = () => {
      if (performance.now() >= endAt) {
        socket.end();
        done();
      } else if (options.rate > 0) idle.push(ask);
      else ask();
    };
    socket.on("connect", next);
    socket.on("error", () => done());
    socket.on("data", (bytes: Buffer) => {
      if (wanted === 0) {
        const head = bytes.toString("latin1", 0, Math.min(bytes.length, 2048));
        const ends = head.indexOf("\r\n\r\n") + 4;
        wanted = ends + Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
        if (head.startsWith("HTTP/1.1 200")) accepted += options.batch;
        else if (refused++ === 0) process.stderr.write(`${head}\n`);
      }
      wanted -= bytes.length;
      if (wanted <= 0) {
        wanted = 0;
        answered++;
        next();
      }
    });
  });
}

const callers = Array.from({ length: options.callers }, caller);
if (options.rate > 0) {
  let sent = 0;
  while (performance.now() < endAt) {
    const due = Math.floor(((performance.now() - startedAt) / 1000) * options.rate);
    for (; sent < due && idle.length > 0; sent++) idle.shift()!();
    await Bun.sleep(1);
  }
  for (let tries = 0; answered < asked && tries < 2_000; tries++) await Bun.sleep(1);
} else await Promise.all(callers);

const { user, system } = process.cpuUsage();
const seconds = (performance.now() - startedAt) / 1000;
process.stdout.write(`${JSON.stringify({ accepted, refused, seconds, cpuS: (user + system) / 1e6 })}\n`);
process.exit(0);
