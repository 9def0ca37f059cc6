import {
  headers,
  type Msg,
  type MsgHdrs,
  type NatsConnection,
  NoRespondersError,
  RequestError,
  TimeoutError,
} from "@nats-io/transport-node";
import type { Clock } from "../kit/clock.ts";
import { BusError } from "./bus.ts";

/** A reply with this header says why the node that answers failed. */
const errorHeader = "X-Svc-Bus-Error";

function toBusError(subject: string, error: unknown): BusError {
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

/** Resolves when the server has the message. Errors name the subject without the prefix. */
export async function sendSurely(
  clock: Clock,
  connection: NatsConnection,
  prefix: string,
  subject: string,
  payload: Uint8Array,
  timeoutMs: number,
): Promise<void> {
  const most = connection.info?.max_payload ?? Number.POSITIVE_INFINITY;
  if (payload.length > most)
    throw new BusError("refused", `the message has ${payload.length} bytes, the bus takes at most ${most}`);
  try {
    connection.publish(prefix + subject, payload);
    if (!(await flushed(clock, connection, timeoutMs)))
      throw new BusError("timeout", `the bus did not take ${subject} in time`);
  } catch (error) {
    throw toBusError(subject, error);
  }
}

/** Whether the server has handled all that was sent to it, subscriptions too, within `timeoutMs`. */
export async function flushed(clock: Clock, connection: NatsConnection, timeoutMs: number): Promise<boolean> {
  let cancel = () => {};
  const late = new Promise<boolean>((resolve) => {
    cancel = clock.after(timeoutMs, () => resolve(false));
  });
  try {
    return await Promise.race([connection.flush().then(() => true), late]);
  } finally {
    cancel();
  }
}

/** The first reply, from any node that answers the subject. */
export async function request(
  connection: NatsConnection,
  prefix: string,
  subject: string,
  payload: Uint8Array,
  timeoutMs: number,
): Promise<Uint8Array> {
  let reply: Msg;
  try {
    reply = await connection.request(prefix + subject, payload, { timeout: timeoutMs });
  } catch (error) {
    throw toBusError(subject, error);
  }
  const failed = reply.headers?.get(errorHeader);
  if (failed) throw new BusError("remote", failed);
  return reply.data;
}

/** The replies within `timeoutMs`, without error replies; no replies when no node answers the subject. */
export async function requestMany(
  connection: NatsConnection,
  prefix: string,
  subject: string,
  payload: Uint8Array,
  { timeoutMs, repliesMax }: { timeoutMs: number; repliesMax: number },
): Promise<Uint8Array[]> {
  const replies: Uint8Array[] = [];
  try {
    const answers = await connection.requestMany(prefix + subject, payload, {
      strategy: "timer",
      maxWait: timeoutMs,
      maxMessages: repliesMax,
    });
    for await (const reply of answers) {
      if (!reply.headers?.get(errorHeader)) replies.push(reply.data);
      if (replies.length >= repliesMax) break;
    }
  } catch (error) {
    const trouble = toBusError(subject, error);
    if (trouble.trouble !== "no_responders") throw trouble;
  }
  return replies;
}
