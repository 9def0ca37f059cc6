import { connect, type Socket } from "node:net";

const frame = (type: number, flags: number, stream: number, payload: Buffer): Buffer => {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
};

/** Without an index, and with lengths of one byte. */
const header = (name: string, value: string): Buffer =>
  Buffer.concat([
    Buffer.from([0, name.length]),
    Buffer.from(name),
    Buffer.from([value.length]),
    Buffer.from(value),
  ]);

const headersType = 1;
const endOfStreamAndHeaders = 5;
const settingsType = 4;
/** SETTINGS_INITIAL_WINDOW_SIZE: 0 */
const noWindow = Buffer.from([0, 4, 0, 0, 0, 0]);

export interface Untaken {
  /** Answers whose heads came. */
  heads(): number;
  close(): void;
}

/** One HTTP/2 connection that asks for each path and takes no byte of the answers. */
export function askAndTakeNothing(url: string, paths: readonly string[], key?: string): Untaken {
  const { hostname, port, host } = new URL(url);
  const socket: Socket = connect(Number(port), hostname, () => {
    socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    socket.write(frame(settingsType, 0, 0, noWindow));
    for (const [place, path] of paths.entries()) {
      const fields = [
        ...[
          header(":method", "GET"),
          header(":scheme", "http"),
          header(":path", path),
          header(":authority", host),
        ],
        ...(key === undefined ? [] : [header("authorization", `Bearer ${key}`)]),
      ];
      socket.write(frame(headersType, endOfStreamAndHeaders, 1 + 2 * place, Buffer.concat(fields)));
    }
  });
  let heads = 0;
  let rest = Buffer.alloc(0);
  socket.on("error", () => {});
  socket.on("data", (bytes: Buffer) => {
    rest = Buffer.concat([rest, bytes]);
    while (rest.length >= 9 && rest.length >= 9 + rest.readUIntBE(0, 3)) {
      if (rest[3] === headersType) heads++;
      rest = rest.subarray(9 + rest.readUIntBE(0, 3));
    }
  });
  return { heads: () => heads, close: () => socket.destroy() };
}
