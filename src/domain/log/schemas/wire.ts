import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  CheckEnforcementResponseSchema,
  type GetSchemaResponseSchema,
  type SchemaInfoSchema,
  type TestUpcastResponseSchema,
} from "../../../gen/svc/v1/event_schema_pb.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { storedJson } from "../../../kit/payload-json.ts";
import { messageOf, payload, timestampOf } from "../../../kit/wkt.ts";
import type { Enforcement, SchemaHead, SchemaRow, Upcasted } from "./service.ts";

const toHead = ({ event_name, version, description, created_at }: SchemaHead) => ({
  ...{ eventName: event_name, version, description },
  createdAt: timestampOf(created_at),
});

export const toInfo: (head: SchemaHead) => MessageInitShape<typeof SchemaInfoSchema> = toHead;

export const toSchema = (row: SchemaRow): MessageInitShape<typeof GetSchemaResponseSchema> => ({
  ...toHead(row),
  schemaJson: row.schema_json,
});

export const headJson = ({ event_name, version, hash, description, created_at }: SchemaHead) => ({
  ...{ event_name, version, hash, description },
  created_at: rfc3339(created_at),
});

export const schemaJson = (row: SchemaRow) => ({ ...headJson(row), schema: storedJson(row.schema_json) });

export const toUpcasted = ({ data, steps }: Upcasted): MessageInitShape<typeof TestUpcastResponseSchema> => ({
  ...payload("data", "dataValue", JSON.stringify(data)),
  stepsApplied: steps,
});

export const upcastedJson = ({ data, steps }: Upcasted) => ({
  success: true,
  data,
  steps_applied: steps.map(({ fromVersion, toVersion, description }) => ({
    ...{ from_version: fromVersion, to_version: toVersion, description },
  })),
});

export const enforcementJson = ({ mode, schemas, trafficWindowHours, totalCount }: Enforcement) => ({
  mode,
  traffic_window_hours: trafficWindowHours,
  total_schemas: totalCount,
  schemas: schemas.map((check) => ({
    ...{ event_name: check.eventName, version: check.version, schema_hash: check.schemaHash },
    ...{ asserts: check.asserts, compile_error: check.compileError },
    traffic: check.traffic.map(({ version, schemaHash, count }) => ({
      ...{ version, schema_hash: schemaHash, count },
    })),
    traffic_truncated: check.trafficTruncated,
  })),
});

export const toEnforcement = (found: Enforcement) =>
  messageOf(CheckEnforcementResponseSchema)(enforcementJson(found));
