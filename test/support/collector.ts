interface Attribute {
  key: string;
  value: { stringValue?: string; intValue?: number | string };
}

export interface SentSpan {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  kind: number;
  attributes: Attribute[];
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  status?: { code?: number };
}

/** What a node sent in one request. */
export interface SentSpans {
  path: string;
  resource: Record<string, unknown>;
  spans: SentSpan[];
}

export const valuesOf = (attributes: readonly Attribute[]): Record<string, unknown> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue ?? Number(value.intValue)]));

/** A receiver of traces over OTLP/HTTP, as an OpenTelemetry collector is one. */
export function openCollector() {
  const collector = {
    endpoint: "",
    sent: [] as SentSpans[],
    /** Everything that came, as text. */
    raw: "",
    answer: (): Response | Promise<Response> => Response.json({}),
    spans: () => collector.sent.flatMap(({ spans }) => spans),
    forget() {
      collector.sent = [];
      collector.raw = "";
      collector.answer = () => Response.json({});
    },
    stop: () => server.stop(true),
  };
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const text = await request.text();
      collector.raw += text;
      for (const { resource, scopeSpans } of JSON.parse(text).resourceSpans)
        for (const { spans } of scopeSpans)
          collector.sent.push({
            ...{ path: new URL(request.url).pathname, spans },
            resource: valuesOf(resource.attributes),
          });
      return collector.answer();
    },
  });
  collector.endpoint = `http://127.0.0.1:${server.port}`;
  return collector;
}
