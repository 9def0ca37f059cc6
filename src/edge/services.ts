import type { DescService } from "@bufbuild/protobuf";
import { AgentToolsService } from "../gen/svc/v1/agent_tools_pb.ts";
import { AlertService } from "../gen/svc/v1/alert_pb.ts";
import { AuditService } from "../gen/svc/v1/audit_pb.ts";
import { CausalityService } from "../gen/svc/v1/causality_pb.ts";
import { EntityStreamService } from "../gen/svc/v1/entity_stream_pb.ts";
import { EnvironmentService } from "../gen/svc/v1/environment_pb.ts";
import { ErrorService } from "../gen/svc/v1/error_pb.ts";
import { EventSchemaService } from "../gen/svc/v1/event_schema_pb.ts";
import { ProjectionService } from "../gen/svc/v1/projection_pb.ts";
import { PubSubService } from "../gen/svc/v1/pubsub_pb.ts";
import { QueryService } from "../gen/svc/v1/query_pb.ts";
import { RepairService } from "../gen/svc/v1/repair_pb.ts";
import { SvcService } from "../gen/svc/v1/svc_pb.ts";
import { TimeTravelService } from "../gen/svc/v1/timetravel_pb.ts";
import { WebhookEndpointService, WebhookService } from "../gen/svc/v1/webhook_pb.ts";
import { WorkerService } from "../gen/svc/v1/worker_pb.ts";

/** Every service of the wire. A method without an operation answers `unimplemented`. */
export const services: readonly DescService[] = [
  SvcService,
  EntityStreamService,
  ProjectionService,
  PubSubService,
  AuditService,
  QueryService,
  CausalityService,
  RepairService,
  ErrorService,
  EventSchemaService,
  WebhookService,
  WebhookEndpointService,
  EnvironmentService,
  WorkerService,
  TimeTravelService,
  AgentToolsService,
  AlertService,
];
