import { expect, test } from "bun:test";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { DescMessage } from "@bufbuild/protobuf";
import { RepairFilterSchema } from "../../src/gen/svc/v1/repair_pb.ts";
import { ListRunsRequestSchema } from "../../src/gen/svc/v1/svc_pb.ts";
import { generate } from "../support/tidy-gen.ts";
import { typeOf, wireEnums, wireMessages, wireText } from "../support/wire.ts";

const root = resolve(import.meta.dir, "../..");

async function textsBelow(folder: string): Promise<Map<string, string>> {
  const texts = new Map<string, string>();
  for await (const path of new Bun.Glob("**/*").scan({ cwd: folder, onlyFiles: true })) {
    texts.set(path, await readFile(join(folder, path), "utf8"));
  }
  return texts;
}

test("src/gen is what proto/ generates, byte for byte", async () => {
  const into = await mkdtemp(join(tmpdir(), "svc-gen-test-"));
  try {
    await generate(into);
    const fresh = await textsBelow(join(into, "src/gen"));
    const committed = await textsBelow(join(root, "src/gen"));
    expect([...committed.keys()].sort()).toEqual([...fresh.keys()].sort());
    const stale = [...fresh].filter(([path, text]) => committed.get(path) !== text).map(([path]) => path);
    expect(stale, "run `bun run generate` and commit src/gen").toEqual([]);
  } finally {
    await rm(into, { recursive: true, force: true });
  }
});

// Clients in the field were built from these numbers. A line may be added here, none may change.
test.each(
  `RegisterFunctionRequest cancel_on=19:CancelOnSpec[] recording_profile=20:string retry_attempts=41:int32?
  RegisterFunctionResponse function=1:Function created=2:bool
  ListFunctionsRequest cursor=3:string name=4:string mode=5:string offset=6:int32
  TriggerRequest metadata=4:g.Struct version=5:int32 data_value=6:g.Value
  TriggerResponse run_ids=1:string[] event_id=2:string sequence=40:uint64
  TriggerSyncRequest timeout_ms=4:int32 metadata=5:g.Struct data_value=6:g.Value version=7:int32
  RunResult status=3:RunStatus error=5:Error duration_ms=6:int32 wait_timed_out=7:bool output_value=8:g.Value
  InvokeFunctionRequest function_id=1:string data=2:g.Struct data_value=3:g.Value idempotency_key=4:string
  InvokeFunctionSyncRequest timeout_ms=3:int32 idempotency_key=4:string metadata=5:g.Struct data_value=6:g.Value
  ListRunsRequest limit=5:int32 cursor=6:string offset=7:int32 search=8:string event_id=9:string statuses=10:RunStatus[]
  PatchStepRequest step_id=1:string output=2:g.Struct reason=3:string output_value=4:g.Value
  PausedStepInfo output=3:string injected=4:bool completed_at=5:g.Timestamp status=7:string
  InjectStepOutputRequest new_output=3:string reason=4:string
  InjectStepOutputResponse previous_output=2:string
  FunctionHistoryEntry entity_version=2:int64 function_snapshot=4:Function change_type=7:string
  HealthResponse components=3:map<string,ComponentHealth>
  Function metadata=18:g.Struct debounce=19:DebounceConfig cancel_on=21:CancelOnSpec[] recording_profile=22:string slug=40:string
  DebounceConfig period_ms=1:int32 key=2:string max_wait_ms=3:int64
  RetryConfig backoff_factor=3:double max_delay_ms=4:int32
  Event idempotency_key=4:string version=8:int32 entity_version=11:int64 data_value=12:g.Value
  Run function_version=21:int32 input_value=22:g.Value parent_run_id=25:string claimed_at=31:g.Timestamp event_name=34:string
  Step compensation_for=18:string duration_ms_full=22:int64? sleep_until=23:g.Timestamp stored_status=29:string
  Error retryable=4:bool details=5:g.Struct
  EmitRequest namespace=5:string version=6:int32 data_value=7:g.Value
  EmitResponse run_ids=1:string[] event_id=2:string sequence=40:uint64
  SubscribeOptions ack_mode=6:AckMode backpressure=7:BackpressureMode start_after_sequence=8:uint64?
  SubscriptionEvent sequence=6:uint64 delivery_attempt=7:int32 data_value=8:g.Value
  AckEventRequest namespace=1:string group_name=2:string consumer_id=3:string event_id=4:string ack_type=5:AckType
  ConsumerGroup redeliver_delay_ms=10:int32 status=12:ConsumerGroupStatus member_count=13:int32
  UpdateConsumerGroupRequest group=1:ConsumerGroup update_mask=2:g.FieldMask
  PublishResponse event_id=1:string sequence=2:uint64
  AppendEventRequest expected_version=5:int64 version=7:int32 data_value=9:g.Value
  AppendEventResponse entity_version=1:int64 event_id=2:string sequence=3:uint64
  StreamEvent data_value=9:g.Value processed=12:bool created_at=16:g.Timestamp nats_seq=19:uint64
  GetStreamInfoResponse event_count=4:int64 deleted=7:bool
  EntityHistoryRun steps=7:EntityHistoryStep[] duration_ms_full=8:int64?
  EntityHistoryStep error_message=6:string duration_ms_full=7:int64?
  GetSnapshotResponse created_at=6:g.Timestamp state_value=7:g.Value
  ProjectionEvent seq=4:int64 kind=8:ProjectionEventKind data_value=9:g.Value
  SaveProjectionStateRequest last_event_time=6:g.Timestamp state_value=7:g.Value
  GetProjectionResponse mode=7:string state_value=8:g.Value registry=9:ProjectionInfo state_environment_id=12:string
  ProjectionInfo event_handlers=14:g.Struct rebuild_target_seq=16:int64? version_full=19:int64
  RebuildJob progress=6:double estimated_remaining=8:g.Duration dry_run=13:bool
  QuerySQLRow values=1:string[] typed_values=2:g.Value[]
  WaitProjectionCatchupRequest min_seq=2:uint64 timeout=3:g.Duration partition=4:string
  WaitProjectionCatchupStreamResponse kind=1:WaitStreamFrameKind error=7:string mode=8:string
  CheckEnforcementResponse mode=1:string schemas=2:SchemaCheck[] traffic_window_hours=3:int32 total_schemas=4:int32
  SchemaTraffic version=1:int32 schema_hash=2:string count=3:int64
  TestUpcastResponse data=1:g.Struct steps_applied=2:UpcastStep[] data_value=3:g.Value
  AuditEvent metadata=7:map<string,string> created_at=8:g.Timestamp payload_value=9:g.Value
  RegisterToolResponse hmac_secret=1:string registered_at=3:g.Timestamp
  InvokeToolResponse error=2:ToolError output_value=3:g.Value
  EnvironmentInfo api_key=3:string updated_at=5:g.Timestamp
  ExecuteSQLResponse columns=1:string[] rows=2:SQLRow[] total_rows=3:int32
  TimeTravelStepSnapshot output=6:bytes original_output=8:bytes patched=13:bool
  WebhookSource verify_secret_set=9:bool ingest_token=14:string verify_config=15:WebhookVerifyConfig
  RotateWebhookSecretRequest grace_seconds=3:int32? expected_updated_at=4:g.Timestamp
  WebhookDelivery request_headers=9:g.Struct signature_key=10:string
  WorkerMessage job_failed=8:JobFailed job_ack=9:JobAck job_nack=10:JobNack
  EngineMessage resume=4:ResumeJob shutdown=6:Shutdown lease_refresh=7:LeaseRefreshResult
  StepYielded sleep=3:SleepYield lease_token=6:string invoke_function=7:InvokeFunctionYield invoke_function_async=8:InvokeFunctionAsyncYield
  InvokeFunctionYield function_id=1:string input_json=2:bytes invoke_timeout_ms=3:int64
  WaitEventYield match_value=3:string timeout=4:g.Timestamp payload_json=5:bytes
  JobAssignment execution_seq=9:int64 lease_expires_at=11:g.Timestamp max_attempts=12:int32
  CompletedStep output_value=4:g.Value status=5:string error_json=6:bytes
  JobNack execution_seq=3:int64 lease_token=4:string reason=5:JobNackReason`
    .split("\n")
    .map((line) => line.trim().split(" ")),
)("%s keeps its numbers", (...parts) => {
  const [name = "", ...fields] = parts;
  const message = wireMessages.get(name);
  const found = message?.fields.map((field) => `${field.name}=${field.number}:${typeOf(field)}`) ?? [];
  expect(fields.filter((field) => !found.includes(field))).toEqual([]);
});

test.each([
  ["FunctionStatus", "FUNCTION_STATUS", "0 ACTIVE=1 PAUSED=2 ARCHIVED=3"],
  ["ExecutionMode", "EXECUTION_MODE", "0 PUSH=1 PULL=2"],
  [
    "RunStatus",
    "RUN_STATUS",
    "0 RUNNING=2 COMPLETED=3 FAILED=4 CANCELLED=5 PAUSED=6 WAITING_FOR_CAPACITY=7 WAITING=8",
  ],
  [
    "StepStatus",
    "STEP_STATUS",
    "0 PENDING=1 RUNNING=2 COMPLETED=3 FAILED=4 SLEEPING=5 WAITING=6 TIMED_OUT=7 RETRYING=8 DEAD=9",
  ],
  ["StepType", "STEP_TYPE", "0 INVOKE=1 SLEEP=2 WAIT_FOR_EVENT=3 COMPENSATE=4 INVOKE_FUNCTION=5"],
  ["ProjectionEventKind", "PROJECTION_EVENT_KIND", "0 EVENT=1 HEARTBEAT=2"],
  ["WaitStreamFrameKind", "WAIT_STREAM_FRAME_KIND", "0 PROGRESS=1 HEARTBEAT=2 DONE=3"],
  ["AckMode", "ACK_MODE", "0 AUTO=1 MANUAL=2"],
  ["BackpressureMode", "BACKPRESSURE_MODE", "0 DROP=1 BLOCK=2 BUFFER=3"],
  ["ConsumerGroupStatus", "CONSUMER_GROUP_STATUS", "0 ACTIVE=1 PAUSED=2 DELETED=3"],
  ["AckType", "ACK_TYPE", "0 ACK=1 NAK=2 TERM=3"],
  ["LeaseState", "LEASE_STATE", "0 REFRESHED=1 STALE=2 UNKNOWN=3"],
  ["JobNackReason", "JOB_NACK_REASON", "0 AT_CAPACITY=1 DRAINING=2"],
])("%s keeps its constants", (name, prefix, constants) => {
  const expected = constants
    .split(" ")
    .map((constant) => (constant === "0" ? `${prefix}_UNSPECIFIED=0` : `${prefix}_${constant}`));
  expect(wireEnums.get(name)?.values.map((value) => `${value.name}=${value.number}`)).toEqual(expected);
});

test("every enum stands in the table above", () => {
  expect(wireEnums.size).toBe(13);
});

test("the wire is the one in wire.txt, so that a reviewer sees every change of it", async () => {
  const recorded = await readFile(join(import.meta.dir, "wire.txt"), "utf8");
  expect(wireText(), "after a wanted change: bun run refresh").toBe(recorded);
});

test("repairs take every filter of the list of runs", () => {
  const namesOf = ({ fields }: DescMessage) => fields.map(({ name }) => name);
  const ofPages = ["status", "limit", "cursor", "offset", "order_by", "max_value_bytes"];
  const filters = namesOf(ListRunsRequestSchema).filter((name) => !ofPages.includes(name));
  expect(namesOf(RepairFilterSchema).sort()).toEqual(filters.sort());
});
