import type { TObject } from "@sinclair/typebox";

/** One JSON text of the WebSocket, told from others by its field `type`. */
export interface SocketFrame {
  /** For those who write clients: what it is for, and what answers it. */
  about: string;
  /** Its fields besides `type`. Unknown ones are passed over. */
  schema: TObject;
}

/**
 * How an operation appears on the WebSocket: the frames of each side, by `type`. Whom the operation lets in
 * may send all of them; the session decides what each does.
 */
export interface SocketBinding {
  client: Readonly<Record<string, SocketFrame>>;
  server: Readonly<Record<string, SocketFrame>>;
}
