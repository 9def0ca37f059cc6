import type { SvcError } from "../wire/errors.ts";
import { jsonToSend } from "../wire/payload.ts";
import type { Message } from "../wire/read.ts";
import { after, afterTurn, mayRepeat } from "../wire/retry.ts";
import { detour, type Transport } from "../wire/transport.ts";

/** One request of emits is worked on while the next one is made; more at once would be smaller ones. */
const requestsMax = 2;
/** As many as the server takes in one batch. */
const batchMax = 100;
const batchCharactersMax = 1_000_000;
/** No emit waits longer for its turn, in milliseconds. */
const patienceMs = 100;

/** Statuses of refusals: nothing was written. */
const refusals: ReadonlySet<number> = new Set([400, 403, 404, 409, 413, 422, 429]);

interface Emit {
  message: Message;
  /** It has an idempotency key. */
  repeatable: boolean;
  /** Where the caller's trace stands. */
  traceparent?: string | undefined;
  /** It is for later; batches are for now. */
  isDelayed?: boolean;
}

interface UnsentEmit {
  emit: Emit;
  /** JSON of its item of a batch. */
  text: string;
  done: (answer: Message | Promise<Message>) => void;
  failed: (error: unknown) => void;
}

/** How one is sent, how several are in a list of this name, and what is one of them there. */
interface Methods {
  one: string;
  many: string;
  list: string;
  itemOf: (emit: Emit) => Message;
}

const ofEvents: Methods = {
  ...{ one: "SvcService/Emit", many: "SvcService/TriggerBatch", list: "events" },
  /** Each may be part of another trace: it travels with the event. */
  itemOf: ({ message, traceparent }) =>
    traceparent === undefined
      ? message
      : { ...message, metadata: { traceparent, ...(message.metadata as object | undefined) } },
};
const ofMessages: Methods = {
  ...{ one: "PubSubService/Publish", many: "PubSubService/PublishBatch", list: "messages" },
  itemOf: ({ message }) => message,
};

/**
 * Sends emits that are made while others are under way in one request: a program that emits for many
 * callers at once spends one on dozens of them. An emit beside fewer is sent at once, by itself. Each has an
 * outcome of its own: of a batch that is refused, which writes nothing then, each is sent by itself.
 */
function openTogether(
  transport: Transport,
  { one, many, list, itemOf }: Methods,
): (emit: Emit) => Promise<Message> {
  const waiting: UnsentEmit[] = [];
  let requests = 0;
  /** Emits in them. */
  let sent = 0;
  let cancel: (() => void) | undefined;

  /** Asked later, the connection would say where the trace of somebody else stands. */
  const request = { method: "POST", isUntraced: true } as const;
  const alone = ({ message: body, repeatable, traceparent }: Emit) =>
    transport.call<Message>(
      { ...request, path: `/svc.v1.${one}`, body, ...(traceparent && { headers: { traceparent } }) },
      { repeatable },
    );

  /** The next emits for one request: their share of all, so that no request waits for a much larger one. */
  function nextBatch(): UnsentEmit[] {
    const most = Math.min(batchMax, waiting.length, Math.ceil((waiting.length + sent) / requestsMax));
    let count = 1;
    let characters = waiting[0]!.text.length;
    while (count < most) {
      characters += waiting[count]!.text.length;
      if (characters > batchCharactersMax) break;
      count++;
    }
    return waiting.splice(0, count);
  }

  async function send(batch: readonly UnsentEmit[]): Promise<void> {
    const [first] = batch;
    if (batch.length === 1) return alone(first!.emit).then(first!.done, first!.failed);
    const text = `{"${list}":[${batch.map((waiting) => waiting.text).join(",")}]}`;
    const path = `/svc.v1.${many}`;
    try {
      const { results = [] } = await transport.send<{ results?: Message[] }>({ ...request, path, text });
      for (const [at, { done }] of batch.entries()) done(results[at] ?? {});
    } catch (error) {
      const isUnwritten = refusals.has((error as SvcError).status);
      for (const { emit, done, failed } of batch) {
        if (isUnwritten || mayRepeat(error, emit.repeatable)) done(alone(emit));
        else failed(error);
      }
    }
  }

  function pump(isLate = false): void {
    while (waiting.length > 0 && (isLate || requests < requestsMax)) {
      const batch = nextBatch();
      requests++;
      sent += batch.length;
      // Callers that were answered emit again within the turn: those emits go together.
      void send(batch).then(() =>
        afterTurn(() => {
          requests--;
          sent -= batch.length;
          pump();
        }),
      );
    }
    if (waiting.length === 0) cancel?.();
    cancel =
      waiting.length === 0
        ? undefined
        : (cancel ??
          after(patienceMs, () => {
            cancel = undefined;
            pump(true);
          }));
  }

  return (emit) => {
    // What answers in the place of a server goes by who calls.
    if (emit.isDelayed || detour.isHere()) return alone(emit);
    const text = jsonToSend(itemOf(emit))!;
    return new Promise((done, failed) => {
      waiting.push({ emit, text, done, failed });
      pump();
    });
  };
}

export const openEmits = (transport: Transport) => openTogether(transport, ofEvents);
export const openPublishes = (transport: Transport) => openTogether(transport, ofMessages);
