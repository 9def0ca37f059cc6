import { SvcError } from "../wire/errors.ts";
import type { Transport } from "../wire/transport.ts";
import { type Stamp, stamp } from "./lease.ts";
import { openStreamSocket, type StreamSocket } from "./stream-socket.ts";

/** The server's answer to `register`, as far as it is read. */
export interface RegisteredMessage {
  clockOffMs?: string;
  definitionConflicts?: string[];
  leaseMs?: number;
  serverVersion?: string;
  openWaits?: boolean;
}

export interface WorkerStreamOptions {
  transport: Transport;
  /** Fields of the `register` message. */
  registration: object;
  /** The server knows the worker; what it says from now on left it later than `askedAt`. */
  onRegistered: (socket: StreamSocket, askedAt: Stamp, registered: RegisteredMessage) => void;
  onMessage: (message: Record<string, unknown>, socket: StreamSocket) => void;
  /** The stream ended, whether the server knew the worker or not. Undefined for an end without an error. */
  onEnd: (error: SvcError | undefined, socket: StreamSocket) => void;
}

const path = "/svc.v1.WorkerService/Connect";
/** For the answer to `register`. */
const openTimeoutMs = 15_000;

export const cutError = (): SvcError =>
  new SvcError("unreachable", "the stream was cut", { retryable: true });

/** Opens a stream and registers the worker on it. Resolves when the server has answered; throws SvcError. */
export async function openWorkerStream(options: WorkerStreamOptions): Promise<void> {
  const { transport, registration, onRegistered, onMessage, onEnd } = options;
  const headers = await transport.headers();
  const { url } = transport;
  const askedAt = stamp();
  let own: StreamSocket | undefined;
  await new Promise<void>((resolve, reject) => {
    const late = setTimeout(() => {
      transport.lost?.(url, true);
      own?.destroy();
      reject(new SvcError("timeout", "the stream was not answered in time", { retryable: true }));
    }, openTimeoutMs);
    const opening = openStreamSocket({
      ...{ url, path, headers },
      onMessage(message) {
        // That server goes: the next stream is opened at another.
        if (message.shutdown) transport.lost?.(url, true);
        if (!message.registered) return onMessage(message, own!);
        clearTimeout(late);
        onRegistered(own!, askedAt, message.registered);
        resolve();
      },
      onEnd(error) {
        clearTimeout(late);
        transport.lost?.(url);
        reject(error ?? cutError());
        if (own) onEnd(error, own);
      },
    });
    opening.then((opened) => {
      own = opened;
      own.send({ register: { ...registration, clockMs: String(Date.now()) } });
    }, reject);
  });
}
