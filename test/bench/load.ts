/**
 * Load over real HTTP, in a process of its own and as cheap as it can be: one raw socket a caller, one request at a time,
 * answers read no further than their length. Prints one JSON line.
 */
import { createHmac } from "node:crypto";
import { connect } from "node:net";
import { percentile } from "./figures.ts";

const options = JSON.parse(process.argv[2]!) as {
  url: string;
  key: string;
  callers: number;
  seconds: number;
  /** Requests a second in all; 0 sends the next as soon as the last is answered. */
  rate: number;
  event: string;
  /** Instead of an event: messages of this topic. */
  topic?: string;
  /** Instead of an event: appends to so many streams, at any version. */
  streams?: number;
  /** Instead of an event: puts or gets of so many keys of bucket `bench`. */
  kv?: { method: "PUT" | "GET"; keys: number };
  /** Instead of an event: signed requests to this source of webhooks, each of an id of its own. */
  hook?: { path: string; secret: string };
  /** Events a request; 1 is `Emit`, more is `TriggerBatch`. Of messages: `Publish` and `PublishBatch`; of appends all to one stream. */
  batch: number;
  /** So many customers take turns, from this number on; without them all events are of `c-1042`. */
  customers?: number;
  firstCustomer?: number;
};
/** Several, with commas between, share the callers. */
const targets = options.url.split(",").map((one) => new URL(one));
const { topic, streams, hook } = options;
const [service, one, many] =
  streams !== undefined
    ? ["EntityStreamService", "AppendEvent", "AppendEvents"]
    : topic === undefined
      ? ["SvcService", "Emit", "TriggerBatch"]
      : ["PubSubService", "Publish", "PublishBatch"];
const method = `${service}/${options.batch > 1 ? many : one}`;
const head = `POST /svc.v1.${method} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer ${options.key}\r\nContent-Type: application/json\r\nContent-Length: `;
const name =
  streams !== undefined
    ? `"eventName":${JSON.stringify(options.event)}`
    : topic === undefined
      ? `"event":${JSON.stringify(options.event)}`
      : `"topic":${JSON.stringify(topic)}`;
const list = topic === undefined ? "events" : "messages";
const epoch = performance.timeOrigin;

const { customers = 1, firstCustomer = 1042 } = options;
let made = 0;

function request(): string {
  if (options.kv !== undefined) return keyRequest(options.kv);
  const at = (epoch + performance.now()).toFixed(2);
  const customer = firstCustomer + (made++ % customers);
  if (hook)
    return hookOf(`{"id":"w-${process.pid}-${made}","type":"sent","at":${at},"customer":"c-${customer}"}`);
  const one = `{${name},"data":{"at":${at},"customer":"c-${customer}","total":42.5,"note":"bench"}}`;
  if (streams !== undefined) return appendOf(one);
  const body = options.batch > 1 ? `{"${list}":[${Array(options.batch).fill(one).join(",")}]}` : one;
  return `${head}${body.length}\r\n\r\n${body}`;
}

function hookOf(body: string): string {
  const signature = createHmac("sha256", hook!.secret).update(body).digest("hex");
  return `POST ${hook!.path} HTTP/1.1\r\nHost: bench\r\nX-Signature: ${signature}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}

function appendOf(one: string): string {
  const target = `"entityId":"stream-${made % streams!}","entityType":"bench","expectedVersion":-1`;
  const events = () => Array(options.batch).fill(one).join(",");
  const body =
    options.batch > 1 ? `{"streams":[{${target},"events":[${events()}]}]}` : `{${target},${one.slice(1)}`;
  return `${head}${body.length}\r\n\r\n${body}`;
}

function keyRequest({ method, keys }: NonNullable<typeof options.kv>): string {
  const line = `${method} /api/v1/kv/buckets/bench/keys/key-${made++ % keys} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer ${options.key}\r\n`;
  if (method === "GET") return `${line}\r\n`;
  const body = `{"at":${(epoch + performance.now()).toFixed(2)},"customer":"c-1042","total":42.5,"note":"bench"}`;
  return `${line}Content-Type: application/octet-stream\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}

let accepted = 0;
let asked = 0;
let answered = 0;
let refused = 0;
let broken = 0;
const tookMs: number[] = [];
const idle: (() => void)[] = [];
let startedAt = 0;
let endAt = 0;

function caller(place: number): Promise<void> {
  const { hostname, port } = targets[place % targets.length]!;
  return new Promise((done) => {
    const socket = connect(Number(port), hostname);
    socket.setNoDelay(true);
    let left = 0;
    let askedAt = 0;
    const ask = () => {
      asked++;
      askedAt = performance.now();
      socket.write(request());
    };
    const next = () => {
      if (performance.now() >= endAt) {
        done();
        socket.end();
      } else if (options.rate > 0) idle.push(ask);
      else ask();
    };
    socket.on("connect", next);
    socket.on("error", () => {});
    // Before its time: the server hung up, and what it was asked last is not answered.
    socket.on("close", () => {
      if (performance.now() < endAt) broken++;
      done();
    });
    let early = "";
    socket.on("data", (bytes: Buffer) => {
      if (left === 0) {
        const text = early + bytes.toString("latin1");
        const ends = text.indexOf("\r\n\r\n") + 4;
        if (ends < 4) {
          early = text;
          return;
        }
        const length = /content-length: (\d+)/i.exec(text);
        left = ends + Number(length?.[1] ?? 0) - early.length;
        early = "";
        if (text.startsWith("HTTP/1.1 200")) accepted += options.batch;
        else if (refused++ === 0) process.stderr.write(`${text}\n`);
      }
      left -= bytes.length;
      if (left > 0) return;
      left = 0;
      answered++;
      tookMs.push(performance.now() - askedAt);
      next();
    });
  });
}

startedAt = performance.now();
endAt = startedAt + options.seconds * 1000;
const callers = Promise.all(Array.from({ length: options.callers }, (_, place) => caller(place)));
let due = 0;
if (options.rate > 0) {
  let sent = 0;
  while (performance.now() < endAt) {
    due = Math.floor(((performance.now() - startedAt) / 1000) * options.rate);
    for (; sent < due && idle.length > 0; sent++) idle.shift()!();
    await Bun.sleep(1);
  }
  for (let tries = 0; answered < asked && tries < 5_000; tries++) await Bun.sleep(1);
} else await callers;

const { user, system } = process.cpuUsage();
const seconds = (performance.now() - startedAt) / 1000;
tookMs.sort((a, b) => a - b);
const answer = {
  accepted,
  refused,
  broken,
  /** Requests that were due and not sent, as every caller still waited: above a few the rate was not held. */
  late: Math.max(0, due - asked),
  seconds,
  startedAt: epoch + startedAt,
  p50: percentile(tookMs, 0.5),
  p95: percentile(tookMs, 0.95),
  p99: percentile(tookMs, 0.99),
  cpuS: (user + system) / 1e6,
};
process.stdout.write(`${JSON.stringify(answer)}\n`);
process.exit(0);
