import type { TestServer } from "../support/server.ts";
import { type DoorIn, sendText } from "./doors-in.ts";

/** Data that is brought up and answered, stored nowhere: to the form that it has already. */
export async function schemaDoors(server: TestServer): Promise<DoorIn[]> {
  await server.rpc("EventSchemaService", "RegisterSchema", { eventName: "door.schema", schemaJson: "true" });
  const names = '"eventName":"door.schema","fromVersion":1';
  const door = (name: string, path: string, field: string): DoorIn => ({
    name: `${name} ${field}`,
    takes: ({ text }) => field === "data_value" || path.startsWith("/api") || text.startsWith("{"),
    async put({ text }) {
      const answer = (await sendText(server, path, `{${names},"${field}":${text}}`)) as
        | { data?: unknown; dataValue?: unknown }
        | undefined;
      return answer && JSON.stringify(answer.data ?? answer.dataValue ?? null);
    },
  });
  const method = "/svc.v1.EventSchemaService/TestUpcast";
  return [
    door("TestUpcast", method, "data"),
    door("TestUpcast", method, "data_value"),
    door("POST upcast", "/api/v1/events/upcast", "data"),
  ];
}
