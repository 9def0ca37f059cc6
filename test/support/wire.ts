import type { DescEnum, DescField, DescFile, DescMessage } from "@bufbuild/protobuf";
import { ScalarType } from "@bufbuild/protobuf";
import { file_svc_v1_agent_tools } from "../../src/gen/svc/v1/agent_tools_pb.ts";
import { file_svc_v1_audit } from "../../src/gen/svc/v1/audit_pb.ts";
import { file_svc_v1_entity_stream } from "../../src/gen/svc/v1/entity_stream_pb.ts";
import { file_svc_v1_environment } from "../../src/gen/svc/v1/environment_pb.ts";
import { file_svc_v1_event_schema } from "../../src/gen/svc/v1/event_schema_pb.ts";
import { file_svc_v1_projection } from "../../src/gen/svc/v1/projection_pb.ts";
import { file_svc_v1_pubsub } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { file_svc_v1_query } from "../../src/gen/svc/v1/query_pb.ts";
import { file_svc_v1_svc } from "../../src/gen/svc/v1/svc_pb.ts";
import { file_svc_v1_timetravel } from "../../src/gen/svc/v1/timetravel_pb.ts";
import { file_svc_v1_types } from "../../src/gen/svc/v1/types_pb.ts";
import { file_svc_v1_webhook } from "../../src/gen/svc/v1/webhook_pb.ts";
import { file_svc_v1_worker } from "../../src/gen/svc/v1/worker_pb.ts";

export const wireFiles: readonly DescFile[] = [
  file_svc_v1_agent_tools,
  file_svc_v1_audit,
  file_svc_v1_entity_stream,
  file_svc_v1_environment,
  file_svc_v1_event_schema,
  file_svc_v1_projection,
  file_svc_v1_pubsub,
  file_svc_v1_query,
  file_svc_v1_svc,
  file_svc_v1_timetravel,
  file_svc_v1_types,
  file_svc_v1_webhook,
  file_svc_v1_worker,
];

export const wireMessages = new Map<string, DescMessage>(
  wireFiles.flatMap((file) => file.messages.map((message): [string, DescMessage] => [message.name, message])),
);
export const wireEnums = new Map<string, DescEnum>(
  wireFiles.flatMap((file) => file.enums.map((one): [string, DescEnum] => [one.name, one])),
);

const short = (typeName: string) => typeName.replace("svc.v1.", "").replace("google.protobuf.", "g.");
const scalar = (type: ScalarType) => (ScalarType[type] ?? "unknown").toLowerCase();

/** `int64?`, `string[]`, `map<string,string>`, `Run`, `g.Struct`: what a field carries, in the notation of the list. */
export function typeOf(field: DescField): string {
  switch (field.fieldKind) {
    case "scalar":
      return scalar(field.scalar) + (field.proto.proto3Optional ? "?" : "");
    case "enum":
      return short(field.enum.typeName);
    case "message":
      return short(field.message.typeName);
    case "list":
      return `${field.listKind === "scalar" ? scalar(field.scalar) : short((field.message ?? field.enum).typeName)}[]`;
    case "map":
      return `map<${scalar(field.mapKey)},${
        field.mapKind === "scalar" ? scalar(field.scalar) : short((field.message ?? field.enum).typeName)
      }>`;
  }
}

/** The whole wire as text, a line per method, message and enum. */
export function wireText(): string {
  const lines: string[] = [];
  for (const file of wireFiles) {
    for (const service of file.services) {
      for (const method of service.methods) {
        const takes =
          (method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming") && "stream ";
        const gives =
          (method.methodKind === "server_streaming" || method.methodKind === "bidi_streaming") && "stream ";
        const reads = method.idempotency === 1 ? " reads" : "";
        lines.push(
          `rpc ${service.name}/${method.name}(${takes || ""}${short(method.input.typeName)}) -> ${gives || ""}${short(method.output.typeName)}${reads}`,
        );
      }
    }
    for (const message of file.messages) {
      const fields = message.fields.map((field) => {
        const oneof = field.oneof ? ` in ${field.oneof.name}` : "";
        return `${field.name}=${field.number}:${typeOf(field)}${oneof}`;
      });
      lines.push(`message ${message.name}: ${fields.join(", ")}`.trimEnd());
    }
    for (const one of file.enums) {
      lines.push(
        `enum ${one.name}: ${one.values.map((value) => `${value.name}=${value.number}`).join(", ")}`,
      );
    }
  }
  return `${lines.join("\n")}\n`;
}

export const writeWire = () => Bun.write(new URL("../unit/wire.txt", import.meta.url), wireText());
