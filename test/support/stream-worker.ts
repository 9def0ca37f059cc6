import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type CallOptions, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import {
  type EngineMessage,
  type JobAssignment,
  WorkerMessageSchema,
  WorkerService,
} from "../../src/gen/svc/v1/worker_pb.ts";
import { until } from "./until.ts";

export const protocols = ["connect binary", "connect json", "grpc"] as const;
export type Protocol = (typeof protocols)[number];

export function transportOf(
  protocol: Protocol,
  { url, grpcUrl }: { url: string; grpcUrl: string | undefined },
): Transport {
  if (protocol === "grpc") return createGrpcTransport({ baseUrl: grpcUrl! });
  return createConnectTransport({
    baseUrl: url,
    httpVersion: "2",
    useBinaryFormat: protocol === "connect binary",
  });
}

type Payload = MessageInitShape<typeof WorkerMessageSchema>["payload"];
type Kind = Exclude<EngineMessage["payload"]["case"], undefined>;
type Sent<K extends Kind> = Extract<EngineMessage["payload"], { case: K }>["value"];

export interface StreamWorker {
  say(payload: NonNullable<Payload>): void;
  /** The next message of that kind that nobody has asked for yet. */
  hear<K extends Kind>(kind: K): Promise<Sent<K>>;
  /** Everything the server has said, in order. */
  readonly heard: EngineMessage["payload"][];
  register(functionIds: string[], more?: { maxConcurrentJobs?: number; sdk?: string }): Promise<string>;
  beat(...jobs: JobAssignment[]): void;
  ack(job: JobAssignment): void;
  complete(job: JobAssignment, output?: object): void;
  /** No more is said. */
  hangUp(): void;
  /** The connection is cut. */
  cut(): void;
  /** Resolves with the error that ended it, or undefined for a good end. */
  readonly ended: Promise<ConnectError | undefined>;
}

export const fenceOf = ({ jobId, executionSeq, leaseToken }: JobAssignment) => ({
  jobId,
  executionSeq,
  leaseToken,
});

/** A worker by hand, on a real socket: says what it is told to, keeps what it hears. */
export function openStreamWorker(
  transport: Transport,
  {
    key,
    id = "w",
    headers = {},
  }: { key?: string | undefined; id?: string; headers?: Record<string, string> },
): StreamWorker {
  const outbox: NonNullable<Payload>[] = [];
  let wake = () => {};
  let silent = false;
  const cut = new AbortController();
  const heard: EngineMessage["payload"][] = [];
  const taken = new Set<EngineMessage["payload"]>();

  async function* said() {
    for (;;) {
      for (let next = outbox.shift(); next; next = outbox.shift())
        yield create(WorkerMessageSchema, { payload: next } as MessageInitShape<typeof WorkerMessageSchema>);
      if (silent) return;
      await new Promise<void>((woken) => {
        wake = woken;
      });
    }
  }

  const options: CallOptions = {
    headers: { ...headers, ...(key && { authorization: `Bearer ${key}` }) },
    signal: cut.signal,
  };
  const ended = (async () => {
    try {
      for await (const { payload } of createClient(WorkerService, transport).connect(said(), options))
        heard.push(payload);
      return undefined;
    } catch (error) {
      return ConnectError.from(error);
    }
  })();
  let over: { error: ConnectError | undefined } | undefined;
  void ended.then((error) => {
    over = { error };
  });

  const worker: StreamWorker = {
    heard,
    ended,
    say(payload) {
      outbox.push(payload);
      wake();
    },
    hear: (kind) =>
      until(
        () => {
          const found = heard.find((payload) => payload.case === kind && !taken.has(payload));
          if (!found && over) throw new Error(`the stream has ended: ${over.error}`);
          if (found) taken.add(found);
          return found?.value as never;
        },
        { about: `a message ${kind}`, everyMs: 5 },
      ),
    async register(functionIds, { maxConcurrentJobs = 1, sdk = "0.36.0" } = {}) {
      const version = { sdk, runtime: "test" };
      worker.say({ case: "register", value: { workerId: id, functionIds, maxConcurrentJobs, version } });
      return (await worker.hear("registered")).workerId;
    },
    beat(...jobs) {
      worker.say({
        case: "heartbeat",
        value: { workerId: id, activeJobs: jobs.length, jobs: jobs.map(fenceOf) },
      });
    },
    ack: (job) => worker.say({ case: "jobAck", value: fenceOf(job) }),
    complete: (job, output = {}) =>
      worker.say({ case: "jobCompleted", value: { ...fenceOf(job), output: output as never } }),
    hangUp() {
      silent = true;
      wake();
    },
    cut: () => cut.abort(),
  };
  return worker;
}
