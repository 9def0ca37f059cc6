import { AsyncLocalStorage } from "node:async_hooks";
import { SvcError } from "../wire/errors.ts";
import { type Message, payload } from "../wire/read.ts";
import { detour, type Request } from "../wire/transport.ts";
import { asJson } from "./testing-json.ts";

/** An event that a function under test appended to a stream. */
export interface TestAppend {
  entityId: string;
  entityType: string;
  event: string;
  data: unknown;
  /** In its stream, from 1. */
  version: number;
}

const prefix = "/svc.v1.EntityStreamService/";
const running = new AsyncLocalStorage<TestStreams>();
detour.answer = (request) => running.getStore()?.answer(request);
detour.isHere = () => running.getStore() !== undefined;

/** The streams of one test run: whatever client the function uses, its appends come here. */
export class TestStreams {
  readonly appended: TestAppend[] = [];
  readonly #byKey = new Map<string, TestAppend>();

  during<Result>(work: () => Promise<Result>): Promise<Result> {
    return running.run(this, work);
  }

  /** Undefined for a call that is none of streams. */
  answer({ path, body }: Request): Promise<unknown> | undefined {
    if (!path.startsWith(prefix)) return undefined;
    const sent = body as Message;
    const answers: Record<string, () => unknown> = {
      AppendEvent: () => this.#append([{ ...sent, events: [sent] }])[0],
      AppendEvents: () => ({ results: this.#append(sent.streams as Message[]) }),
      ReadStream: () => this.#read(sent),
      GetStreamInfo: () => this.#info(sent),
    };
    const answer = answers[path.slice(prefix.length)];
    return new Promise((resolve) => {
      if (!answer)
        throw new SvcError("not_found", `testFunction keeps no ${path.slice(prefix.length)}`, {
          status: 404,
        });
      resolve(answer());
    });
  }

  #of(entityId: unknown): TestAppend[] {
    return this.appended.filter((one) => one.entityId === entityId);
  }

  /** All or nothing. */
  #append(streams: readonly Message[]): unknown[] {
    const isRepeated = ({ idempotencyKey }: Message) => this.#byKey.has(String(idempotencyKey));
    for (const { entityId, expectedVersion = 0, events } of streams) {
      // As on the server, a repeated append is answered like the first, whatever it expects.
      if ((events as Message[]).every(isRepeated)) continue;
      const { length } = this.#of(entityId);
      if (expectedVersion === -1 || expectedVersion === length) continue;
      const said = `version conflict: expected ${expectedVersion}, got ${length}`;
      throw new SvcError("aborted", said, { status: 409 });
    }
    return streams.flatMap(({ entityId, entityType, events }) =>
      (events as Message[]).map((sent) => {
        const key = sent.idempotencyKey as string | undefined;
        const found = key === undefined ? undefined : this.#byKey.get(key);
        const one = found ?? {
          ...{ entityId: String(entityId), entityType: String(entityType), event: String(sent.eventName) },
          ...{ data: asJson(payload(sent, "data")), version: this.#of(entityId).length + 1 },
        };
        if (!found) this.appended.push(one);
        if (key !== undefined) this.#byKey.set(key, one);
        const sequence = this.appended.indexOf(one) + 1;
        return { eventId: `evt_appended${sequence}`, entityVersion: one.version, sequence };
      }),
    );
  }

  #read({ entityId, fromVersion, limit, direction }: Message): unknown {
    const isBack = direction === "backward";
    const from = Number(fromVersion) || (isBack ? Number.POSITIVE_INFINITY : 1);
    const all = this.#of(entityId).filter(({ version }) => (isBack ? version <= from : version >= from));
    if (isBack) all.reverse();
    return {
      events: all.slice(0, Number(limit)).map((one) => ({
        ...{
          id: `evt_appended${this.appended.indexOf(one) + 1}`,
          name: one.event,
          version: 1,
          source: "api",
        },
        ...{ dataValue: asJson(one.data), entityVersion: one.version },
        ...{ natsSeq: this.appended.indexOf(one) + 1, timestamp: new Date(0).toISOString() },
      })),
      ...(all.length > Number(limit) && { nextVersion: all[Number(limit)]!.version }),
    };
  }

  #info({ entityId }: Message): unknown {
    const all = this.#of(entityId);
    if (!all[0]) throw new SvcError("not_found", "stream not found", { status: 404 });
    return { entityId, entityType: all[0].entityType, version: all.length };
  }
}
