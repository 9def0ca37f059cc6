import { errorOfCode } from "./envelopes.ts";
import { SvcError } from "./errors.ts";
import { type Ask, type Asker, digits, type Way } from "./subscription-ways.ts";
import type { Transport } from "./transport.ts";

/** Of the server, less a few. */
const subscriptionsMax = 90;
const connectMs = 10_000;
/** After so long without a frame the server is asked for a sign of life, and after so long again it is taken for gone. */
const silenceMsDefault = 20_000;
const lingerMs = 500;

interface Entry {
  ask: Ask;
  to: Asker;
  /** Once confirmed. */
  id?: string;
  stopped: boolean;
}

/** One WebSocket and the subscriptions on it. */
interface Line {
  entries: Set<Entry>;
  isOver: boolean;
  add(entry: Entry): void;
  stop(entry: Entry): void;
}

interface ResultEntry {
  pattern: string;
  status: string;
  subscriptionId?: string;
  code?: string;
  message?: string;
  reason?: string;
  startSequence?: string;
  epoch?: string;
}

type Frame = Record<string, unknown> & {
  meta?: { timestamp?: string; sequence?: number; sequenceExact?: string; custom?: Record<string, unknown> };
};

const urlSafe = (text: string): string =>
  btoa(String.fromCharCode(...new TextEncoder().encode(text)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");

/** Frames are correlated by their pattern, so of two alike the second is asked for when the first was answered. */
function subscribeFrame({ pattern, replay, filter, topicOnly, startAfter, epoch }: Ask): string {
  const options = {
    // The place to go on from stands there.
    includeMetadata: true,
    withStart: true,
    ...(replay && { replay }),
    ...(filter && { filter }),
    ...(topicOnly && { topicOnly }),
    ...(startAfter !== undefined && { startAfterSequence: `${startAfter}` }),
    ...(epoch !== undefined && { epoch: `${epoch}` }),
  };
  return JSON.stringify({ type: "subscribe", subscription: { pattern, options } });
}

/** The words of sockets in those of all other calls; what is not here is the asker's mistake. */
const codes: Record<string, string> = { PERMISSION_DENIED: "permission_denied", INTERNAL_ERROR: "internal" };

const refusal = ({ code = "INTERNAL_ERROR", message = code, reason }: Partial<ResultEntry>): SvcError =>
  errorOfCode(codes[code] ?? "invalid_argument", message, reason);

function openLine(transport: Transport, silenceMs: number): Line {
  const entries = new Set<Entry>();
  const byId = new Map<string, Entry>();
  /** By pattern, the one that was asked for first. */
  const asked = new Map<string, Entry[]>();
  let raw: WebSocket | undefined;
  let isOpen = false;
  let heardAt = Date.now();
  let probedAt = 0;
  let linger: ReturnType<typeof setTimeout> | undefined;

  const say = (text: string) => {
    if (isOpen) raw?.send(text);
  };

  function gone(why: string, retryAfterMs = 0): void {
    if (line.isOver) return;
    line.isOver = true;
    clearTimeout(connecting);
    clearTimeout(linger);
    clearInterval(watching);
    const error = new SvcError(isOpen ? "unreachable" : "not_opened", `${transport.url}/ws: ${why}`, {
      retryable: true,
      ...(retryAfterMs > 0 && { retryAfterMs }),
    });
    raw?.close();
    for (const entry of [...entries]) end(entry, error);
  }

  function end(entry: Entry, error: SvcError | undefined): void {
    entries.delete(entry);
    if (entry.id !== undefined && byId.get(entry.id) === entry) byId.delete(entry.id);
    if (!entry.stopped) entry.to.ended(error);
    if (entries.size === 0 && !line.isOver) {
      linger = setTimeout(() => {
        if (entries.size === 0) gone("nobody subscribes any more");
      }, lingerMs);
    }
  }

  function askFor(entry: Entry): void {
    const { pattern } = entry.ask;
    const queue = asked.get(pattern);
    if (queue) queue.push(entry);
    else {
      asked.set(pattern, [entry]);
      say(subscribeFrame(entry.ask));
    }
  }

  function onResult(result: ResultEntry): void {
    const queue = asked.get(result.pattern);
    const entry = queue?.shift();
    if (!queue || !entry) return;
    while (queue[0]?.stopped) queue.shift();
    if (queue[0]) say(subscribeFrame(queue[0].ask));
    else asked.delete(result.pattern);
    const { subscriptionId: id } = result;
    if (result.status !== "ok" || id === undefined) {
      end(entry, refusal(result));
      return;
    }
    if (entry.stopped) {
      say(JSON.stringify({ type: "unsubscribe", subscriptionId: id }));
      return;
    }
    entry.id = id;
    byId.set(id, entry);
    const sequence = digits(result.startSequence);
    const epoch = digits(result.epoch);
    entry.to.started({ ...(sequence !== undefined && { sequence }), ...(epoch !== undefined && { epoch }) });
  }

  function onFrame(frame: Frame): void {
    if (frame.type === "event") {
      const { meta, eventId } = frame;
      const sequence = digits(meta?.sequenceExact) ?? digits(meta?.sequence);
      byId.get(String(frame.subscriptionId))?.to.arrived({
        topic: String(frame.topic),
        data: frame.data,
        ...(typeof eventId === "string" && { eventId }),
        ...(sequence !== undefined && { sequence }),
        ...(meta?.timestamp !== undefined && { timestamp: meta.timestamp }),
        ...(meta?.custom !== undefined && { metadata: meta.custom }),
      });
    } else if (frame.type === "subscription_result") {
      for (const result of frame.results as ResultEntry[]) onResult(result);
    } else if (frame.type === "subscription_error" && frame.retrying !== true) {
      const entry = byId.get(String(frame.subscriptionId));
      if (entry) end(entry, refusal(frame as Partial<ResultEntry>));
    }
  }

  async function open(): Promise<void> {
    const { authorization = "", "x-svc-environment": environment } = await transport.headers();
    const key = authorization.replace(/^Bearer /, "");
    const query = environment === undefined ? "" : `?env=${encodeURIComponent(environment)}`;
    const protocols = ["svc.v1", ...(key === "" ? [] : [`svc.auth.bearer.${urlSafe(key)}`])];
    if (line.isOver) return;
    raw = new WebSocket(`${transport.url.replace(/^http/, "ws")}/ws${query}`, protocols);
    raw.onopen = () => {
      isOpen = true;
      heardAt = Date.now();
      clearTimeout(connecting);
      for (const [first] of asked.values()) if (first) say(subscribeFrame(first.ask));
    };
    raw.onmessage = ({ data }) => {
      heardAt = Date.now();
      if (line.isOver) return;
      try {
        onFrame(JSON.parse(String(data)) as Frame);
      } catch {
        gone("a frame that is none");
      }
    };
    // What happened is told by the close that follows.
    raw.onerror = () => {};
    raw.onclose = ({ code, reason }) => gone(`closed with ${code}${reason && ` (${reason})`}`);
  }

  const connecting = setTimeout(() => gone("did not open in time"), connectMs);
  const watching = setInterval(() => {
    if (!isOpen || Date.now() - heardAt < silenceMs) return;
    if (probedAt > heardAt && Date.now() - probedAt >= silenceMs) gone("silent");
    // No server knows this pattern, and every server says so.
    else if (probedAt <= heardAt) {
      probedAt = Date.now();
      say(JSON.stringify({ type: "subscribe", subscription: { pattern: "" } }));
    }
  }, silenceMs / 4);
  (watching as { unref?: () => void }).unref?.();

  const line: Line = {
    entries,
    isOver: false,
    add(entry) {
      clearTimeout(linger);
      entries.add(entry);
      askFor(entry);
    },
    stop(entry) {
      if (entry.stopped) return;
      entry.stopped = true;
      if (entry.id !== undefined) say(JSON.stringify({ type: "unsubscribe", subscriptionId: entry.id }));
      if (entries.has(entry)) end(entry, undefined);
    },
  };
  open().catch((error) => gone(error instanceof Error ? error.message : String(error)));
  return line;
}

/** Subscriptions on WebSockets, many on one. Ends with code `not_opened` when the socket did not come about. */
export function socketWay(transport: Transport, silenceMs = silenceMsDefault): Way {
  const lines = new Set<Line>();
  return (ask, to) => {
    for (const line of lines) if (line.isOver) lines.delete(line);
    let line = [...lines].find((one) => one.entries.size < subscriptionsMax);
    if (!line) {
      line = openLine(transport, silenceMs);
      lines.add(line);
    }
    const entry: Entry = { ask, to, stopped: false };
    line.add(entry);
    return () => line.stop(entry);
  };
}

/**
 * A socket, and where none comes about, a stream: browsers do not say why a socket was refused, the same request as a
 * stream does, and it goes through proxies that know no sockets. With `onlySocket` it only tells why.
 */
export const eitherWay = (socket: Way, stream: Way, onlySocket: boolean): Way => {
  return (ask, to) => {
    let stop = socket(ask, {
      ...to,
      ended(error) {
        if (error?.code !== "not_opened") return to.ended(error);
        if (!onlySocket) stop = stream(ask, to);
        else {
          const unopened = new SvcError("unreachable", error.message, { retryable: true });
          const end = (why = unopened) => {
            stop();
            to.ended(why);
          };
          stop = stream(ask, { started: () => end(), arrived() {}, ended: end });
        }
      },
    });
    return () => stop();
  };
};
