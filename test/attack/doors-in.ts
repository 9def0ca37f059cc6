import type { JsonObject } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { PubSubService } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { SvcService } from "../../src/gen/svc/v1/svc_pb.ts";
import { sql } from "../../src/kit/sql.ts";
import { type Assignment, pullWorker, stepIdOf } from "../support/pull-worker.ts";
import type { TestServer } from "../support/server.ts";
import { isObject, messageOf, type Probe } from "./doors-values.ts";

/** What became of a value at a door: undefined is refused, a text is what is stored. Throws for anything else. */
export type Outcome = string | undefined;

export interface DoorIn {
  name: string;
  takes: (probe: Probe) => boolean;
  put: (probe: Probe) => Promise<Outcome>;
}

export const protocols = ["connect json", "connect binary", "grpc", "grpc-web"] as const;
export type Protocol = (typeof protocols)[number];

export function transportOf(protocol: Protocol, server: TestServer): Transport {
  const baseUrl = server.url;
  if (protocol === "grpc") return createGrpcTransport({ baseUrl: server.running.grpcUrl! });
  if (protocol === "grpc-web") return createGrpcWebTransport({ baseUrl, httpVersion: "1.1" });
  return createConnectTransport({
    baseUrl,
    httpVersion: "1.1",
    useBinaryFormat: protocol === "connect binary",
  });
}

const broken = new Set([Code.Internal, Code.Unknown, Code.DataLoss, Code.Unavailable, Code.Unimplemented]);

/** A refusal is undefined; a fault of the server is thrown. */
export async function unlessRefused<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    const { code } = ConnectError.from(error);
    if (broken.has(code)) throw error;
    return undefined;
  }
}

const anything = () => true;
const binary = (probe: Probe) => !probe.textOnly;

export async function storedText(server: TestServer, query: ReturnType<typeof sql>): Promise<string> {
  const [row] = await server.running.domain.store.all<{ text: string }>(query);
  if (!row) throw new Error("nothing is stored");
  return row.text;
}

/** A POST or PUT of a text. A status that is neither success nor refusal is thrown. */
export async function sendText(server: TestServer, path: string, body: string, method = "POST") {
  const headers = { authorization: `Bearer ${server.adminKey}`, "content-type": "application/json" };
  const answer = await fetch(`${server.url}${path}`, { method, headers, body });
  const text = await answer.text();
  if (answer.status >= 500) throw new Error(`answered ${answer.status} ${text.slice(0, 200)}`);
  return answer.status < 300 ? (text === "" ? {} : JSON.parse(text)) : undefined;
}

/** Unary calls that carry a payload in `data` or its twin. */
export function emittingDoors(server: TestServer): DoorIn[] {
  const eventOf = (id: string) => storedText(server, sql`SELECT data AS text FROM events WHERE id = ${id}`);
  const metadataOf = (id: string) =>
    storedText(server, sql`SELECT metadata AS text FROM events WHERE id = ${id}`);
  const publishedOf = (id: string) =>
    storedText(server, sql`SELECT data AS text FROM topic_messages WHERE id = ${id}`);
  const inputOf = (id: string) =>
    storedText(
      server,
      sql`SELECT e.data AS text FROM runs r JOIN events e ON e.id = r.event_id WHERE r.id = ${id}`,
    );
  type Read = (answer: never) => Promise<string>;
  const rpc = (
    path: string,
    body: (text: string) => string,
    read: Read,
    fields = ["data", "dataValue", "data_value"],
  ): DoorIn[] =>
    fields.map((field) => ({
      name: `${path} ${field}`,
      takes: anything,
      async put({ text }) {
        const answer = await sendText(server, `/svc.v1.${path}`, body(`"${field}":${text}`));
        return answer === undefined ? undefined : read(answer as never);
      },
    }));
  const event = (answer: { eventId: string }) => eventOf(answer.eventId);
  const doors = [
    ...rpc("SvcService/Emit", (data) => `{"event":"door.in",${data}}`, event),
    ...rpc("SvcService/Trigger", (data) => `{"event":"door.in",${data}}`, event, ["data"]),
    ...rpc("PubSubService/Emit", (data) => `{"event":"door.in",${data}}`, event, ["data"]),
    ...rpc("SvcService/TriggerSync", (data) => `{"event":"door.in",${data}}`, event, ["data"]),
    ...rpc(
      "SvcService/TriggerBatch",
      (data) => `{"events":[{"event":"door.in"},{"event":"door.in",${data}}]}`,
      (answer: { results: { eventId: string }[] }) => eventOf(answer.results[1]!.eventId),
      ["data", "data_value"],
    ),
    ...rpc("SvcService/InvokeFunction", (data) => `{"functionId":"door.sink",${data}}`, event, [
      "data",
      "dataValue",
    ]),
    ...rpc(
      "SvcService/InvokeFunctionSync",
      (data) => `{"functionId":"door.sink","timeoutMs":1,${data}}`,
      (answer: { result: { runId: string } }) => inputOf(answer.result.runId),
      ["data"],
    ),
    ...rpc(
      "PubSubService/Publish",
      (data) => `{"topic":"door.in",${data}}`,
      (answer: { eventId: string }) => publishedOf(answer.eventId),
    ),
    ...rpc(
      "PubSubService/PublishBatch",
      (data) => `{"messages":[{"topic":"door.in",${data}}]}`,
      (answer: { results: { eventId: string }[] }) => publishedOf(answer.results[0]!.eventId),
      ["data"],
    ),
    ...rpc(
      "SvcService/Emit",
      (data) => `{"event":"door.in",${data}}`,
      (answer: { eventId: string }) => metadataOf(answer.eventId),
      ["metadata"],
    ).map((door) => ({ ...door, takes: ({ text }: Probe) => text.startsWith("{") })),
  ];
  for (const protocol of protocols) {
    const transport = transportOf(protocol, server);
    const headers = { authorization: `Bearer ${server.adminKey}` };
    const carried = (probe: Probe) => binary(probe) && (probe.finite || protocol !== "connect json");
    const fields = (text: string) => {
      const value = JSON.parse(text) as unknown;
      return isObject(value) ? { data: value as JsonObject } : { dataValue: messageOf(value) };
    };
    const twin = (text: string) => ({ dataValue: messageOf(JSON.parse(text)) });
    const svc = createClient(SvcService, transport);
    const pubsub = createClient(PubSubService, transport);
    const ways: [string, (sent: ReturnType<typeof fields>) => Promise<string>][] = [
      ["Emit", async (sent) => eventOf((await svc.emit({ event: "door.in", ...sent }, { headers })).eventId)],
      [
        "InvokeFunction",
        async (sent) =>
          eventOf((await svc.invokeFunction({ functionId: "door.sink", ...sent }, { headers })).eventId),
      ],
      [
        "Publish",
        async (sent) =>
          publishedOf((await pubsub.publish({ topic: "door.in", ...sent }, { headers })).eventId),
      ],
      [
        "TriggerBatch",
        async (sent) => {
          const { results } = await svc.triggerBatch(
            { events: [{ event: "door.in", ...sent }] },
            { headers },
          );
          return eventOf(results[0]!.eventId);
        },
      ],
    ];
    for (const [name, send] of ways)
      for (const [field, of] of [["data", fields] as const, ["data_value", twin] as const])
        doors.push({
          name: `${name} ${field} over ${protocol}`,
          takes: carried,
          put: ({ text }) => unlessRefused(send(of(text) as ReturnType<typeof fields>)),
        });
  }
  return doors;
}

/** Metadata of groups and functions, which is an object. */
export function metadataDoors(server: TestServer): DoorIn[] {
  let made = 0;
  const isMetadata = ({ text }: Probe) => text.startsWith("{") && text !== "{}" && text.length < 12_000;
  return [
    {
      name: "RegisterFunction metadata",
      takes: isMetadata,
      async put({ text }) {
        const body = `{"id":"meta.${++made}","metadata":${text}}`;
        const answer = await sendText(server, "/svc.v1.SvcService/RegisterFunction", body);
        return answer && JSON.stringify((answer as { function: { metadata: unknown } }).function.metadata);
      },
    },
    {
      name: "CreateConsumerGroup metadata",
      takes: isMetadata,
      async put({ text }) {
        const body = `{"name":"meta-${++made}","pattern":"events:door.in","metadata":${text}}`;
        const answer = await sendText(server, "/svc.v1.PubSubService/CreateConsumerGroup", body);
        return answer && JSON.stringify((answer as { metadata: unknown }).metadata);
      },
    },
  ];
}

/** So many jobs of a function, for a worker that speaks REST by hand. */
export async function jobsOf(server: TestServer, functionId: string, count: number): Promise<Assignment[]> {
  const worker = pullWorker(server, `w-${functionId}`);
  await server.rpc("SvcService", "RegisterFunction", { id: functionId, retry: { maxAttempts: 1 } });
  await worker.register(functionId);
  for (let left = count; left > 0; left -= 100) {
    const calls = Array.from({ length: Math.min(left, 100) }, () =>
      server.rpc("SvcService", "InvokeFunction", { functionId }),
    );
    await Promise.all(calls);
  }
  const jobs: Assignment[] = [];
  for (let tries = 0; jobs.length < count && tries < 500; tries++)
    jobs.push(...(await worker.poll(count - jobs.length)));
  if (jobs.length < count) throw new Error(`${jobs.length} of ${count} jobs of ${functionId} came`);
  return jobs;
}

/** A worker's reports over REST, with a job of its own for each value. */
export async function reportDoors(server: TestServer, probes: number): Promise<DoorIn[]> {
  const jobs = await jobsOf(server, "door.rest", probes * 5);
  const worker = "/api/v1/workers/w-door.rest";
  const fence = ({ execution_seq, lease_token }: Assignment) =>
    `"execution_seq":${execution_seq},"lease_token":"${lease_token}"`;
  const outputOf = ({ run_id }: Assignment) =>
    storedText(server, sql`SELECT output AS text FROM runs WHERE id = ${run_id}`);
  const stepOf = ({ run_id }: Assignment, column: "output" | "input") =>
    storedText(
      server,
      column === "output"
        ? sql`SELECT output AS text FROM steps WHERE run_id = ${run_id}`
        : sql`SELECT input AS text FROM steps WHERE run_id = ${run_id}`,
    );
  const step = (job: Assignment, output: string) =>
    `[{"id":"${stepIdOf(job, "s")}","name":"s","type":"invoke","status":"completed","output":${output}}]`;
  const door = (
    name: string,
    body: (job: Assignment, text: string) => string,
    read: (job: Assignment) => Promise<string>,
  ): DoorIn => ({
    name: `PUT job, ${name}`,
    takes: anything,
    async put({ text }) {
      const job = jobs.pop()!;
      const sent = `{${fence(job)},${body(job, text)}}`;
      return (await sendText(server, `${worker}/jobs/${job.job_id}`, sent, "PUT")) === undefined
        ? undefined
        : read(job);
    },
  });
  return [
    door("output", (_, text) => `"status":"completed","output":${text}`, outputOf),
    door(
      "a step's output",
      (job, text) => `"status":"progress","steps":${step(job, text)}`,
      (job) => stepOf(job, "output"),
    ),
    door(
      "payload of a wait",
      (job, text) =>
        `"status":"yielded","yield":{"step_id":"${stepIdOf(job, "w")}","type":"wait_for_event","event_filter":{"event":"never","payload":${text}}}`,
      (job) => stepOf(job, "input"),
    ),
    door(
      "input of an invoke",
      (job, text) =>
        `"status":"yielded","yield":{"step_id":"${stepIdOf(job, "i")}","type":"invoke_function","function_id":"door.sink","input":${text}}`,
      (job) => stepOf(job, "input"),
    ),
    {
      name: "exchange, output",
      takes: anything,
      async put({ text }) {
        const job = jobs.pop()!;
        const sent = `{"reports":[{"job_id":"${job.job_id}",${fence(job)},"status":"completed","output":${text}}],"available":0}`;
        const answer = (await sendText(server, `${worker}/exchange`, sent)) as
          | { results: { status: unknown }[] }
          | undefined;
        return answer?.results[0]?.status === "ok" ? outputOf(job) : undefined;
      },
    },
  ];
}

/** What a person writes into a run. */
export async function steeringDoors(server: TestServer): Promise<DoorIn[]> {
  const [job] = await jobsOf(server, "door.steered", 1);
  const stepId = stepIdOf(job!, "s");
  const steps = [{ id: stepId, name: "s", type: "invoke", status: "completed", output: 1 }];
  const worker = pullWorker(server, "w-door.steered");
  const wait = { type: "wait_for_event", event_filter: { event: "never" } };
  await worker.report(job!, { status: "yielded", steps, yield: { step_id: stepIdOf(job!, "w"), ...wait } });
  await server.rpc("SvcService", "PauseRun", { runId: job!.run_id });
  const stored = () =>
    storedText(
      server,
      sql`SELECT output AS text FROM steps WHERE run_id = ${job!.run_id} AND step_id = ${stepId}`,
    );
  const door = (name: string, method: string, body: (text: string) => string): DoorIn => ({
    name,
    takes: anything,
    async put({ text }) {
      const answer = await sendText(server, `/svc.v1.SvcService/${method}`, body(text));
      return answer === undefined ? undefined : stored();
    },
  });
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const named = `"runId":"${job!.run_id}","stepId":"${stepId}"`;
  return [
    door("PatchStep output", "PatchStep", (text) => `{"stepId":"${stepId}","output":${text}}`),
    door("PatchStep output_value", "PatchStep", (text) => `{"stepId":"${stepId}","output_value":${text}}`),
    door("InjectStepOutput", "InjectStepOutput", (text) => `{${named},"newOutput":${JSON.stringify(text)}}`),
    door(
      "InjectStepOutput in base64",
      "InjectStepOutput",
      (text) => `{${named},"newOutput":"${base64(text)}"}`,
    ),
  ];
}
