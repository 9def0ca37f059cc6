import { describe, expect, test } from "bun:test";
import { keptHeaders } from "../../src/domain/integrations/webhooks/rules.ts";
import { redactPayload } from "../../src/domain/record/audit/redaction.ts";
import { capturedHeaders } from "../../src/domain/record/requests/rules.ts";
import { redactText } from "../../src/kit/redact.ts";

describe("what is kept of calls holds nothing that opens something, by whatever name it came", () => {
  test("queries of URLs, documents, and names that end like a secret's", () => {
    const input = {
      ...{ name: "billing", url: "https://hooks.example.test/in?token=s3cr3t#x", session: "s3cr3t" },
      ...{ data: { stripe: "s3cr3t" }, nested: { data: 1, aws_credential: "s3cr3t" } },
    };
    const { payload, removed } = redactPayload(input, new Set(), ["data"]);
    expect(payload).not.toContain("s3cr3t");
    expect(JSON.parse(payload!)).toEqual({
      ...{ name: "billing", url: "https://hooks.example.test/in?[REDACTED]#x", nested: { data: 1 } },
    });
    expect(removed).toEqual(["aws_credential", "data", "session"]);
  });

  test("headers", () => {
    const names = ["x-session", "x-amz-credential", "x-svc-session-id", "set-cookie2"];
    const headers = Object.fromEntries(names.map((name) => [name, "s3cr3t"]));
    expect(Object.values(capturedHeaders(new Headers(headers)))).toEqual(names.map(() => "[REDACTED]"));
    expect(keptHeaders({ "x-session": "s3cr3t", "x-amz-credential": "s3cr3t", "x-topic": "t" })).toEqual({
      "x-topic": "t",
    });
  });

  test("a text keeps the place of a URL", () => {
    expect(redactText("GET http://a.test/b?c=d&e=f failed")).toBe("GET http://a.test/b?[REDACTED] failed");
  });
});
