import type { Operation } from "../kit/operation.ts";
import type { RequestCall } from "./call.ts";
import type { OpenSocketDeps } from "./open-socket.ts";

/** One path at which requests become sockets. */
export interface SocketDoor {
  operation: Operation;
  path: string;
  admit(credentials: Request, requestId: string): Promise<RequestCall>;
  /** Called with a place taken. What it throws is the answer to the upgrade. */
  begin(asked: AskedSocket): BegunSocket | Promise<BegunSocket>;
}

export interface AskedSocket {
  call: RequestCall;
  /** The caller's credentials only: the upgrade's own request ends with the upgrade. */
  credentials: Request;
  request: Request;
  params: Record<string, string>;
  isLegacy: boolean;
}

export interface BegunSocket extends Pick<OpenSocketDeps, "connect" | "watchAuthorization"> {
  /** Called instead of `connect` when no socket comes of it. */
  leave?(): void;
}
