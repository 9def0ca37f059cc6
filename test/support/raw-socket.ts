import { connect } from "node:net";

export interface RawSocket {
  /** Reads on; nothing is read before. */
  resume(): void;
  /** All bytes that came, frame heads included, as text. */
  text(): string;
  close(): void;
}

/** A WebSocket whose client reads nothing until it is told to. */
export function openRawSocket(url: string, path: string, key: string): Promise<RawSocket> {
  const { hostname, port, host } = new URL(url);
  const lines = [
    `GET ${path} HTTP/1.1`,
    `host: ${host}`,
    "connection: Upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    `authorization: Bearer ${key}`,
  ];
  const pieces: Buffer[] = [];
  const text = () => Buffer.concat(pieces).toString("latin1");
  return new Promise((opened, failed) => {
    const socket = connect(Number(port), hostname, () => socket.write(`${lines.join("\r\n")}\r\n\r\n`));
    socket.once("error", failed);
    socket.on("data", (bytes: Buffer) => {
      pieces.push(bytes);
      if (pieces.length > 1) return;
      socket.pause();
      if (!text().startsWith("HTTP/1.1 101")) failed(new Error(text()));
      else opened({ resume: () => socket.resume(), text, close: () => socket.destroy() });
    });
  });
}
