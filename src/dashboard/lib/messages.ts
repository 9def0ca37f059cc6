import type { DescMessage, Message, MessageShape } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type * as agentTools from "../../gen/svc/v1/agent_tools_pb.ts";
import type * as audit from "../../gen/svc/v1/audit_pb.ts";
import type * as causality from "../../gen/svc/v1/causality_pb.ts";
import type * as streams from "../../gen/svc/v1/entity_stream_pb.ts";
import type * as projections from "../../gen/svc/v1/projection_pb.ts";
import type * as pubsub from "../../gen/svc/v1/pubsub_pb.ts";
import type * as queries from "../../gen/svc/v1/query_pb.ts";
import type * as runs from "../../gen/svc/v1/svc_pb.ts";
import type * as timeTravel from "../../gen/svc/v1/timetravel_pb.ts";
import type * as webhooks from "../../gen/svc/v1/webhook_pb.ts";

type Services = Pick<typeof agentTools, "AgentToolsService"> &
  Pick<typeof audit, "AuditService"> &
  Pick<typeof causality, "CausalityService"> &
  Pick<typeof streams, "EntityStreamService"> &
  Pick<typeof projections, "ProjectionService"> &
  Pick<typeof pubsub, "PubSubService"> &
  Pick<typeof queries, "QueryService"> &
  Pick<typeof runs, "SvcService"> &
  Pick<typeof timeTravel, "TimeTravelService"> &
  Pick<typeof webhooks, "WebhookService" | "WebhookEndpointService">;

export type ServiceName = keyof Services;
type MethodsOf<Service extends ServiceName> = Services[Service]["method"];
export type MethodName<Service extends ServiceName> = Capitalize<keyof MethodsOf<Service> & string>;

/** A message as JSON has it: what is empty is left out. */
export type InJson<Of extends Message> = {
  [Field in keyof Of as Field extends `$${string}` ? never : Field]?: ValueInJson<
    Exclude<Of[Field], undefined>
  >;
};

type ValueInJson<Value> = Value extends Timestamp | bigint | Uint8Array
  ? string
  : Value extends Message
    ? InJson<Value>
    : Value extends readonly (infer One)[]
      ? ValueInJson<One>[]
      : // Constants of an enum are words.
        Value extends number
        ? number extends Value
          ? number
          : string
        : Value;

type Answering = { output: DescMessage };

/** What a method answers, as `proto/` describes it. */
export type MethodAnswer<
  Service extends ServiceName,
  Method extends MethodName<Service>,
> = MethodsOf<Service>[Uncapitalize<Method> & keyof MethodsOf<Service>] extends infer Found extends Answering
  ? InJson<MessageShape<Found["output"]>>
  : never;
