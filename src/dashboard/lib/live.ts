import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { rest, socketScope } from "./api.ts";

/** One delivery of the socket. */
export interface LiveFrame {
  topic: string;
  data: Record<string, unknown>;
  eventId?: string;
  meta?: { timestamp: string; sequenceExact?: string; custom?: unknown };
}

export interface LiveOptions {
  /** CEL over `data`, `metadata`, `topic` and `event`. */
  filter?: string;
  /** Deliveries of the past that come first. */
  replay?: number;
  /** Of a log: goes on behind the last delivery after a reconnect. Frames of `system.*` are in no log. */
  resumes?: boolean;
}

export interface Listener {
  pattern: string;
  options?: LiveOptions;
  onFrame(frame: LiveFrame): void;
  /** It listens from now on, at first or again. Frames outside logs may be missing: the data is reread. */
  onBack?(): void;
  /** The server refuses or ends the subscription. */
  onRefused?(message: string): void;
}

type LiveState = "connecting" | "live" | "lost";

/** Of the one connection of the page. */
export const liveState = signal<LiveState>("connecting");

/** Of a socket: what a browser cannot say in headers stands in its query. */
function socketUrl(path: string): URL {
  const url = new URL(path, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  for (const [name, value] of socketScope()) url.searchParams.set(name, value);
  return url;
}

const firstDelayMs = 500;
const longestDelayMs = 10_000;
const protocol = "svc.v1";
/** The close code with which the server ends the socket of a session that is over, among others. */
const closedAsRefused = 1008;

interface Entry {
  listener: Listener;
  /** Given by the server; undefined until it has answered. */
  id: string | undefined;
  /** Where a log goes on. */
  after: { startAfterSequence: string; epoch?: string } | undefined;
  wasLive: boolean;
}

interface ServerFrame {
  type: string;
  subscriptionId?: string;
  topic?: string;
  eventId?: string;
  data?: unknown;
  meta?: LiveFrame["meta"];
  message?: string;
  retrying?: boolean;
  results?: {
    status: string;
    subscriptionId?: string;
    message?: string;
    startSequence?: string;
    epoch?: string;
  }[];
}

/**
 * The live connection of the page: one socket for the environment that is shown. It comes back by itself, and
 * every subscription with it. Subscribes are sent one at a time, as their answers name no request.
 */
class LiveConnection {
  #place = "";
  #socket: WebSocket | undefined;
  #entries = new Set<Entry>();
  #waiting: Entry[] = [];
  #asked: Entry | undefined;
  #attempts = 0;
  #retry: ReturnType<typeof setTimeout> | undefined;

  /** Connects for the environment of the address, which `place` identifies; disconnects where it is empty. */
  use(place: string): void {
    if (place === this.#place && this.#socket) return;
    this.#place = place;
    this.#attempts = 0;
    this.#close();
    if (place !== "") this.#open();
  }

  listen(listener: Listener): () => void {
    const entry: Entry = { listener, id: undefined, after: undefined, wasLive: false };
    this.#entries.add(entry);
    this.#waiting.push(entry);
    this.#subscribeNext();
    return () => this.#leave(entry);
  }

  /** Tries now what would be tried later. */
  hurry(): void {
    if (this.#place === "" || liveState.value === "live") return;
    this.#attempts = 0;
    this.#close();
    this.#open();
  }

  #leave(entry: Entry): void {
    this.#entries.delete(entry);
    this.#waiting = this.#waiting.filter((one) => one !== entry);
    if (entry.id !== undefined) this.#send({ type: "unsubscribe", subscriptionId: entry.id });
  }

  #open(): void {
    liveState.value = this.#attempts === 0 ? "connecting" : "lost";
    const socket = new WebSocket(socketUrl("/ws"), [protocol]);
    this.#socket = socket;
    socket.onopen = () => {
      this.#attempts = 0;
      liveState.value = "live";
      this.#waiting = [...this.#entries];
      this.#subscribeNext();
    };
    socket.onmessage = ({ data }) => this.#take(JSON.parse(data as string) as ServerFrame);
    socket.onclose = ({ code }) => {
      if (this.#socket !== socket) return;
      // A page that is only looked at makes no call that would tell it of the end of its session.
      if (code === closedAsRefused) rest("/api/v1/auth/session").catch(() => {});
      this.#close();
      liveState.value = "lost";
      const delay = Math.min(longestDelayMs, firstDelayMs * 2 ** this.#attempts++);
      this.#retry = setTimeout(() => this.#open(), delay * (0.5 + Math.random() / 2));
    };
  }

  #close(): void {
    clearTimeout(this.#retry);
    const socket = this.#socket;
    this.#socket = undefined;
    this.#asked = undefined;
    this.#waiting = [];
    for (const entry of this.#entries) entry.id = undefined;
    socket?.close();
  }

  #send(frame: object): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(frame));
  }

  #subscribeNext(): void {
    if (this.#asked || this.#socket?.readyState !== WebSocket.OPEN) return;
    const entry = this.#waiting.shift();
    if (!entry) return;
    this.#asked = entry;
    const { pattern, options: { filter, replay, resumes } = {} } = entry.listener;
    const begins = entry.after ?? (resumes ? { withStart: true, ...(replay && { replay }) } : {});
    // Where a log goes on stands in the metadata; frames of no log are shorter without it.
    const options = { ...(resumes && { includeMetadata: true }), ...(filter && { filter }), ...begins };
    this.#send({ type: "subscribe", subscription: { pattern, options } });
  }

  #take(frame: ServerFrame): void {
    if (frame.type === "event") this.#deliver(frame);
    else if (frame.type === "subscription_result") this.#answered(frame);
    else if (frame.type === "subscription_error" && !frame.retrying) {
      const entry = this.#entryOf(frame.subscriptionId);
      if (entry) entry.listener.onRefused?.(frame.message ?? "");
    }
  }

  #entryOf(id: string | undefined): Entry | undefined {
    if (id === undefined) return undefined;
    for (const entry of this.#entries) if (entry.id === id) return entry;
    return undefined;
  }

  #answered({ results: [result] = [] }: ServerFrame): void {
    const entry = this.#asked;
    this.#asked = undefined;
    if (entry && result?.status === "ok") this.#begun(entry, result);
    else if (entry) this.#refused(entry, result?.message ?? "");
    this.#subscribeNext();
  }

  #begun(entry: Entry, result: NonNullable<ServerFrame["results"]>[number]): void {
    if (!this.#entries.has(entry)) {
      this.#send({ type: "unsubscribe", subscriptionId: result.subscriptionId });
      return;
    }
    entry.id = result.subscriptionId;
    const { startSequence, epoch } = result;
    if (entry.listener.options?.resumes && startSequence !== undefined && !entry.after)
      entry.after = { startAfterSequence: startSequence, ...(epoch !== undefined && { epoch }) };
    // No frame tells of changes between the page's first read and this subscription. A log has its own start.
    if (entry.wasLive || !entry.listener.options?.resumes) entry.listener.onBack?.();
    entry.wasLive = true;
  }

  /** A place that the log no longer has is given up: the subscription restarts and the data is reread. */
  #refused(entry: Entry, message: string): void {
    // What it says is about a filter that the page has left.
    if (!this.#entries.has(entry)) return;
    if (entry.after) {
      entry.after = undefined;
      this.#waiting.push(entry);
    } else entry.listener.onRefused?.(message);
  }

  #deliver({ subscriptionId, topic = "", eventId, data, meta }: ServerFrame): void {
    const entry = this.#entryOf(subscriptionId);
    if (!entry) return;
    if (entry.after && meta?.sequenceExact !== undefined)
      entry.after = { ...entry.after, startAfterSequence: meta.sequenceExact };
    entry.listener.onFrame({
      topic,
      data: (typeof data === "object" && data !== null ? data : { value: data }) as Record<string, unknown>,
      ...(eventId !== undefined && { eventId }),
      ...(meta && { meta }),
    });
  }
}

export const live = new LiveConnection();

addEventListener("online", () => live.hurry());
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") live.hurry();
});

const delayMs = 1_000;
const longestWatchDelayMs = 15_000;
/** Ends of a watch that say nothing about it: a later try may succeed. */
const passing = ["unavailable", "resource_exhausted", "internal", "deadline_exceeded"];

/**
 * A path that only sends, such as a bucket's changes, on a socket of its own, which reconnects when it is
 * lost. `path` is called for each connection, to name the place to continue at. An empty path opens nothing.
 */
export function useWatch<Frame extends { type: string }>(
  path: () => string,
  key: string,
  onFrame: (frame: Frame) => void,
): LiveState | "refused" {
  const [state, setState] = useState<LiveState | "refused">("connecting");
  const latest = useRef({ path, onFrame });
  latest.current = { path, onFrame };
  useEffect(() => {
    if (key === "") return;
    let attempts = 0;
    let socket: WebSocket | undefined;
    let retry: ReturnType<typeof setTimeout> | undefined;
    let isRefused = false;
    const open = () => {
      const opened = new WebSocket(socketUrl(latest.current.path()), [protocol]);
      socket = opened;
      opened.onopen = () => {
        attempts = 0;
        setState("live");
      };
      opened.onmessage = ({ data }) => {
        const frame = JSON.parse(data as string) as Frame & { code?: string };
        if (frame.type === "error") isRefused = !passing.includes(frame.code ?? "");
        else latest.current.onFrame(frame);
      };
      opened.onclose = () => {
        if (socket !== opened) return;
        setState(isRefused ? "refused" : "lost");
        if (isRefused) return;
        retry = setTimeout(open, Math.min(longestWatchDelayMs, delayMs * 2 ** attempts++));
      };
    };
    open();
    return () => {
      clearTimeout(retry);
      const last = socket;
      socket = undefined;
      last?.close();
    };
  }, [key]);
  return state;
}
