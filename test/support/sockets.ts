import { TypeCompiler } from "@sinclair/typebox/compiler";
import { serverFrames } from "../../src/domain/realtime/pubsub/socket-binding.ts";
import { closed } from "../../src/edge/perform.ts";
import type { SocketBinding } from "../../src/kit/socket-binding.ts";
import { until } from "./until.ts";

// biome-ignore lint/suspicious/noExplicitAny: tests state the shape they expect
export type SocketFrame = any;

export interface TestSocket {
  raw: WebSocket;
  /** All frames that have come, in order. */
  frames: SocketFrame[];
  /** Their texts. */
  texts: string[];
  closed: { code: number; reason: string } | undefined;
  send(frame: unknown): void;
  sendText(text: string): void;
  /** Waits for so many frames of this type in all. */
  wait(type: string, count?: number): Promise<SocketFrame[]>;
  of(type: string): SocketFrame[];
  /** Subscribes and waits for the answer. */
  subscribe(pattern: string, options?: Record<string, unknown>): Promise<SocketFrame>;
  whenClosed(): Promise<{ code: number; reason: string }>;
  close(): void;
}

export interface SocketOptions {
  key?: string | undefined;
  /** Query, with the question mark. */
  query?: string;
  protocols?: string[];
  headers?: Record<string, string>;
  /** Of a watch, with the frames that it declares. */
  at?: { path: string; frames: SocketBinding["server"] };
}

export const bearerProtocol = (key: string): string =>
  `svc.auth.bearer.${Buffer.from(key).toString("base64url")}`;

const checksOf = (frames: SocketBinding["server"]) =>
  new Map(Object.entries(frames).map(([type, { schema }]) => [type, TypeCompiler.Compile(closed(schema))]));

const ofMain = checksOf(serverFrames);

/** Throws for a frame, or a field of one, that the binding of the socket does not declare. */
export function declaredFrame(text: string, declared = ofMain): SocketFrame {
  const frame = JSON.parse(text);
  const { type, ...fields } = frame;
  if (declared.get(type)?.Check(fields)) return frame;
  const at = declared.get(type)?.Errors(fields).First()?.path ?? "/type";
  throw new Error(`a frame that is not declared, by its ${at}: ${text.slice(0, 300)}`);
}

/** A socket at `/ws`, or at a path of its own, of the server at `url`; with a key it offers it as browsers do. Rejects when it is refused. */
export async function openSocket(url: string, options: SocketOptions = {}): Promise<TestSocket> {
  const { key, query = "", headers, at } = options;
  const declared = at && checksOf(at.frames);
  const protocols = options.protocols ?? (key === undefined ? [] : ["svc.v1", bearerProtocol(key)]);
  const raw = new WebSocket(`${url.replace("http", "ws")}${at?.path ?? "/ws"}${query}`, {
    protocols,
    ...(headers && { headers }),
  } as unknown as string[]);
  const frames: SocketFrame[] = [];
  const texts: string[] = [];
  let closed: TestSocket["closed"];
  raw.addEventListener("message", ({ data }) => {
    texts.push(String(data));
    frames.push(declaredFrame(String(data), declared));
  });
  raw.addEventListener("close", ({ code, reason }) => {
    closed = { code, reason };
  });
  await new Promise<void>((resolve, reject) => {
    raw.addEventListener("open", () => resolve());
    raw.addEventListener("close", ({ code, reason }) => reject(new Error(`closed ${code} ${reason}`)));
    raw.addEventListener("error", () => {});
  });
  const of = (type: string) => frames.filter((frame) => frame.type === type);
  const socket: TestSocket = {
    raw,
    frames,
    texts,
    get closed() {
      return closed;
    },
    send: (frame) => raw.send(JSON.stringify(frame)),
    sendText: (text) => raw.send(text),
    of,
    wait: (type, count = 1) =>
      until(
        () => {
          const found = of(type);
          return found.length >= count && found;
        },
        { about: `${count} frames ${type}`, everyMs: 5 },
      ),
    async subscribe(pattern, options) {
      const count = of("subscription_result").length;
      socket.send({ type: "subscribe", subscription: { pattern, ...(options && { options }) } });
      const found = await socket.wait("subscription_result", count + 1);
      return found[count].results[0];
    },
    whenClosed: () => until(() => closed, { about: "the socket to be closed", everyMs: 5 }),
    close: () => raw.close(),
  };
  return socket;
}
