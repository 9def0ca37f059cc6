import {
  headers,
  type MsgHdrs,
  NoRespondersError,
  RequestError,
  TimeoutError,
} from "@nats-io/transport-node";
import { BusError } from "./bus.ts";

/** A reply with this header says why the node that answers failed. */
export const errorHeader = "X-Svc-Bus-Error";

export function toBusError(subject: string, error: unknown): BusError {
  if (error instanceof BusError) return error;
  const cause =
    error instanceof RequestError && error.isNoResponders() ? new NoRespondersError(subject) : error;
  if (cause instanceof NoRespondersError) return new BusError("no_responders", `no node answers ${subject}`);
  if (cause instanceof TimeoutError) return new BusError("timeout", `no answer on ${subject}`);
  return new BusError("disconnected", String(error));
}

export function errorHeaders(error: unknown): MsgHdrs {
  const made = headers();
  made.set(
    errorHeader,
    (error instanceof Error ? error.message : String(error)).replace(/[\r\n]+/g, " ") || "failed",
  );
  return made;
}
