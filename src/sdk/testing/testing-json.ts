import { jsonToSend } from "../wire/payload.ts";

/** What is left of a value that was stored as JSON and read again. */
export const asJson = (value: unknown): unknown => JSON.parse(jsonToSend(value, "data") ?? "null");
