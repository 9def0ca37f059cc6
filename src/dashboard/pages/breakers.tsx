import type { Static } from "@sinclair/typebox";
import type { BreakerShape } from "../../domain/engine/breakers/operations.ts";
import { base64url, rest } from "../lib/api.ts";
import { count } from "../lib/format.ts";
import { useLoaded, useNet } from "../lib/hooks.ts";
import { may } from "../lib/session.ts";
import { attempt } from "../lib/toasts.ts";
import { Button, Section, Text, When } from "../ui/basics.tsx";
import { Status } from "../ui/status.tsx";
import { ReadTable } from "../ui/table.tsx";

const readMs = 5_000;

type BreakerData = Static<typeof BreakerShape>;

const breakersPath = "/api/v1/circuit-breakers";

/** The breakers of a function, webhook endpoint or agent. An open one lets one call through in 30 s. */
export function BreakersOf({ id, title }: { id: string; title: string }) {
  const read = useLoaded(
    async (signal) =>
      (await rest<BreakerData[]>(breakersPath, { signal })).filter((one) => one.function_id === id),
    [id],
  );
  useNet(read.reload, readMs);
  const reset = async ({ key }: BreakerData) => {
    const call = () => rest(`${breakersPath}/${base64url(key)}/reset`, { method: "POST" });
    if (await attempt(call, "The endpoint is called again")) read.reload();
  };
  return (
    <Section title={title}>
      <ReadTable
        read={read}
        keyOf={({ key }) => key}
        columns={[
          { name: "Endpoint", of: ({ endpoint }) => <Text of={endpoint} /> },
          { name: "Breaker", of: ({ state }) => <Status of={state} /> },
          {
            name: "Failed in a row",
            isNumber: true,
            of: ({ consecutive_fails }) => count(consecutive_fails),
          },
          { name: "Last failure", isNumber: true, of: ({ last_failure }) => <When at={last_failure} /> },
          {
            name: "",
            of: (breaker) =>
              may("functions:invoke") && (
                <span class="row-actions">
                  <Button icon="refresh" text="Close the breaker" onClick={() => void reset(breaker)} />
                </span>
              ),
          },
        ]}
        empty="It has not failed of late"
      />
    </Section>
  );
}
