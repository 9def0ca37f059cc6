import type { ClientRequest } from "node:http";
import type { Duplex } from "node:stream";
import { nodeHttp } from "../wire/node-builtin.ts";

export interface SocketEvents {
  opened(): void;
  message(text: string): void;
  /** Called once; no other is called after it. */
  closed(why: { code: number; reason: string }): void;
}

const opcodes = { rest: 0, text: 1, close: 8, ping: 9, pong: 10 } as const;
const abnormal = { code: 1006, reason: "" };

/** One frame of a client: masked, as RFC 6455 demands. */
function masked(opcode: number, payload: Uint8Array): Uint8Array {
  const mask = crypto.getRandomValues(new Uint8Array(4));
  const frame = new Uint8Array(6 + payload.length);
  frame[0] = 0x80 | opcode;
  frame[1] = 0x80 | payload.length;
  frame.set(mask, 2);
  for (const [at, byte] of payload.entries()) frame[6 + at] = byte ^ mask[at % 4]!;
  return frame;
}

/** Takes the frames of a server out of bytes as they come. */
class FrameReader {
  readonly #onFrame: (opcode: number, isLast: boolean, payload: Buffer) => void;
  #pieces: Buffer[] = [];
  #length = 0;
  #wanted = 2;

  constructor(onFrame: (opcode: number, isLast: boolean, payload: Buffer) => void) {
    this.#onFrame = onFrame;
  }

  take(bytes: Buffer): void {
    this.#pieces.push(bytes);
    this.#length += bytes.length;
    while (this.#length >= this.#wanted) {
      const [whole] = this.#pieces.length === 1 ? this.#pieces : [Buffer.concat(this.#pieces)];
      const head = this.#headOf(whole!);
      this.#pieces = [whole!];
      if (head === undefined) continue;
      const { from, to } = head;
      this.#pieces = to < whole!.length ? [whole!.subarray(to)] : [];
      this.#length -= to;
      this.#wanted = 2;
      this.#onFrame(whole![0]! & 0x0f, (whole![0]! & 0x80) !== 0, whole!.subarray(from, to));
    }
  }

  /** Where the first frame's payload stands; undefined while more of it is wanted. */
  #headOf(bytes: Buffer): { from: number; to: number } | undefined {
    const short = bytes[1]! & 0x7f;
    const from = short === 127 ? 10 : short === 126 ? 4 : 2;
    this.#wanted = from;
    if (bytes.length < from) return undefined;
    const size =
      short === 127 ? Number(bytes.readBigUInt64BE(2)) : short === 126 ? bytes.readUInt16BE(2) : short;
    this.#wanted = from + size;
    return bytes.length < from + size ? undefined : { from, to: from + size };
  }
}

/** A WebSocket that is only read, for Node 20, which has none. Undefined where there is no Node. */
export function openNodeSocket(
  url: string,
  protocols: readonly string[],
  events: SocketEvents,
): (() => void) | undefined {
  const http = nodeHttp(url.startsWith("wss:"));
  if (!http) return undefined;
  let isOver = false;
  let socket: Duplex | undefined;
  const request: ClientRequest = http.request(url.replace(/^ws/, "http"), {
    headers: {
      connection: "Upgrade",
      upgrade: "websocket",
      "sec-websocket-version": "13",
      "sec-websocket-key": btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(16)))),
      "sec-websocket-protocol": protocols.join(", "),
    },
  });

  function end(why: { code: number; reason: string }): void {
    if (isOver) return;
    isOver = true;
    request.destroy();
    socket?.destroy();
    events.closed(why);
  }

  function read(opened: Duplex, head: Buffer): void {
    let texts: Buffer[] = [];
    const frames = new FrameReader((opcode, isLast, payload) => {
      if (isOver) return;
      if (opcode === opcodes.ping) opened.write(masked(opcodes.pong, payload));
      else if (opcode === opcodes.close) {
        const code = payload.length >= 2 ? payload.readUInt16BE(0) : 1005;
        opened.write(masked(opcodes.close, payload.subarray(0, 2)));
        end({ code, reason: payload.subarray(2).toString() });
      } else if (opcode === opcodes.text || opcode === opcodes.rest) {
        texts.push(payload);
        if (!isLast) return;
        const text = Buffer.concat(texts).toString();
        texts = [];
        events.message(text);
      }
    });
    opened.on("data", (bytes: Buffer) => frames.take(bytes));
    events.opened();
    if (head.length > 0) frames.take(head);
  }

  request.on("upgrade", (_response, opened: Duplex, head: Buffer) => {
    socket = opened;
    opened.on("error", () => end(abnormal));
    opened.on("close", () => end(abnormal));
    read(opened, head);
  });
  request.on("response", () => end(abnormal));
  request.on("error", () => end(abnormal));
  request.end();
  return () => {
    socket?.write(masked(opcodes.close, new Uint8Array([0x03, 0xe8])));
    end({ code: 1000, reason: "" });
  };
}
