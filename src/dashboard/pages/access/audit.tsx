import type { Static } from "@sinclair/typebox";
import { useState } from "preact/hooks";
import type { AuditSettingsShape, VerifiedShape } from "../../../domain/record/audit/operations.ts";
import { rest } from "../../lib/api.ts";
import { count, counted, dateTime, instantOf } from "../../lib/format.ts";
import { useFollowed, useLoaded, usePages } from "../../lib/hooks.ts";
import { address, queryOf, setQuery } from "../../lib/router.ts";
import { isAtHome } from "../../lib/session.ts";
import { Button, Empty, Facts, Failure, Page, Section, Text } from "../../ui/basics.tsx";
import { JsonView } from "../../ui/json-view.tsx";
import { Status } from "../../ui/status.tsx";

interface AuditEvent {
  id: string;
  event_type: string;
  payload: {
    operation?: string;
    action?: string;
    resource?: string;
    decision?: string;
    outcome?: string;
    api_key_id?: string;
  } & Record<string, unknown>;
  created_at: string;
  platform_user_id?: string;
  platform_key_id?: string;
}

const pageRows = 100;

/** Filters as they stand in the address. */
function filtersShown() {
  const { query } = address.value;
  const at = (name: string) => {
    const found = instantOf(query.get(name) ?? "");
    return found === undefined ? "" : new Date(found).toISOString();
  };
  return {
    ...{ action: query.get("action") ?? "", caller: query.get("caller") ?? "" },
    ...{ from: at("from"), to: at("to") },
  };
}

type AuditFilters = ReturnType<typeof filtersShown>;

/** What callers of the org did; the record of the platform is asked for by another call. */
async function listAudit({ action, caller, from, to }: AuditFilters, cursor: string, signal: AbortSignal) {
  if (isAtHome()) {
    const asked = { limit: `${pageRows}`, event_type: action, platform_key_id: caller, from, to, cursor };
    const path = `/api/v1/platform/audit${queryOf(asked)}`;
    const page = await rest<{ events: AuditEvent[]; next_cursor?: string }>(path, { signal });
    return { rows: page.events, next: page.next_cursor };
  }
  const asked = { limit: pageRows, action, apiKeyId: caller, fromTimestamp: from, toTimestamp: to, cursor };
  const page = await rest<{ events: AuditEvent[]; next_cursor?: string }>(
    "/svc.v1.AuditService/GetAuthAuditTrail",
    { body: asked, signal },
  );
  return { rows: page.events, next: page.next_cursor };
}

const readMs = 10_000;

export function AuditPage() {
  const filters = filtersShown();
  const isHome = isAtHome();
  const read = usePages((cursor, signal) => listAudit(filters, cursor, signal), [filters]);
  useFollowed(read.reload, { list: "audit", everyMs: readMs });
  return (
    <Page
      title="Audit"
      about={
        isHome ? "What the platform's credentials did" : "What callers were allowed, refused and changed"
      }
      actions={<Verify />}
    >
      {!isHome && <AuditFacts />}
      <search class="filters">
        <div class="filter-row">
          <Filter
            name="action"
            label={isHome ? "Type" : "Action"}
            hint={isHome ? "org.created" : "events:emit"}
          />
          <Filter name="caller" label="Caller" hint={isHome ? "Id of a key" : "Id of a key or user"} />
          <Filter name="from" label="From" hint="2026-11-22 08:00" />
          <Filter name="to" label="To" hint="2026-11-22 18:00" />
        </div>
      </search>
      {read.error !== undefined && <Failure error={read.error} onRetry={read.reload} />}
      {read.value?.length === 0 && (
        <Empty
          title="Nothing is written down"
          says="What callers change is written down within a second. Filters may hide it."
        />
      )}
      {read.value && read.value.length > 0 && (
        <ol class="audit">
          {read.value.map((event) => (
            <AuditRow key={event.id} of={event} />
          ))}
        </ol>
      )}
      {read.hasMore && (
        <p class="more">
          <Button onClick={read.showMore}>Show more</Button>
        </p>
      )}
    </Page>
  );
}

/** Written to the address when it is left, so that half a time is not asked for. */
function Filter({ name, label, hint }: { name: string; label: string; hint: string }) {
  const shown = address.value.query.get(name) ?? "";
  return (
    <input
      key={shown}
      class="filter-text"
      type="search"
      aria-label={label}
      placeholder={`${label}: ${hint}`}
      defaultValue={shown}
      onChange={({ currentTarget: { value } }) => setQuery({ [name]: value })}
    />
  );
}

function AuditRow({ of }: { of: AuditEvent }) {
  const [isOpen, setOpen] = useState(false);
  const { payload, event_type } = of;
  const who = payload.api_key_id ?? of.platform_user_id ?? of.platform_key_id ?? "";
  return (
    <li>
      <details onToggle={({ currentTarget: { open } }) => setOpen(open)}>
        <summary>
          <span class="faint number">{dateTime(instantOf(of.created_at) ?? 0)}</span>
          {payload.decision && <Status of={payload.decision} />}
          <Text of={payload.operation ?? event_type} in="strong" />
          <Text of={payload.resource ?? ""} in="span" class="grows" />
          <Text of={who} in="span" class="faint" />
        </summary>
        {isOpen && <JsonView value={of} what="row" />}
      </details>
    </li>
  );
}

type SettingsData = Static<typeof AuditSettingsShape>;

function AuditFacts() {
  const { value } = useLoaded((signal) => rest<SettingsData>("/api/v1/audit/settings", { signal }), []);
  if (!value) return null;
  const { capture_scope, retention_days, delivery_healthy } = value;
  return (
    <Section title="What is written down">
      <Facts
        of={[
          ["Scope", capture_scope],
          ["Kept", retention_days === 0 ? "without end" : counted(retention_days, "day")],
          ["Rows reach the store", <Status key="delivery" of={delivery_healthy ? "healthy" : "degraded"} />],
        ]}
      />
    </Section>
  );
}

type VerifiedData = Static<typeof VerifiedShape>;

/** Checks the chain from its beginning to its end, as many calls as that takes. */
async function verifyAll(onChecked: (checked: number) => void): Promise<VerifiedData> {
  let checked = 0;
  for (let from = ""; ; ) {
    const found = await rest<VerifiedData>(`/api/v1/audit/verify${from && `?from_sequence=${from}`}`);
    checked += found.checked;
    onChecked(checked);
    if (!found.valid || found.next_sequence === null) return { ...found, checked };
    from = `${found.next_sequence}`;
  }
}

function Verify() {
  const [state, setState] = useState<{ checked: number; found?: VerifiedData; error?: unknown }>();
  const isBusy = state !== undefined && state.found === undefined && state.error === undefined;
  const verify = () => {
    setState({ checked: 0 });
    verifyAll((checked) => setState({ checked })).then(
      (found) => setState({ checked: found.checked, found }),
      (error) => setState({ checked: 0, error }),
    );
  };
  return (
    <>
      <span class="verified" role="status">
        {isBusy && `${counted(state.checked, "row")} checked…`}
        {state?.error !== undefined && <span class="warn">The check failed. Try again.</span>}
        {state?.found?.valid && (
          <>
            <Status of="whole" />
            {` ${counted(state.checked, "row")} ${state.checked === 1 ? "is" : "are"} what was written.`}
          </>
        )}
        {state?.found?.broken && (
          <>
            <Status of="broken" />
            {` Row ${count(state.found.broken.sequence)}: `}
            <Text of={state.found.broken.reason} />
          </>
        )}
      </span>
      <Button icon="integrity" text="Verify the chain" isDisabled={isBusy} onClick={verify} />
    </>
  );
}
