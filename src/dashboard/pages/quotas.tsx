import type { Static } from "@sinclair/typebox";
import { useState } from "preact/hooks";
import type { QuotaShape } from "../../domain/engine/quotas/wire.ts";
import type { KeptShape } from "../../domain/record/retention/operations.ts";
import { rest } from "../lib/api.ts";
import { bytes, count, counted } from "../lib/format.ts";
import { useChanged, useFollowed, useLoaded } from "../lib/hooks.ts";
import { address } from "../lib/router.ts";
import { environments, may, viewer } from "../lib/session.ts";
import { Button, Facts, Failure, Page, Section } from "../ui/basics.tsx";
import { type ChangeEnds, Field, FormDialog, useFields } from "../ui/dialog.tsx";
import { Table } from "../ui/table.tsx";
import { AttributesSection } from "./attributes.tsx";

type QuotaData = Static<typeof QuotaShape>;

type RetentionData = Static<typeof KeptShape>;

const kinds = {
  runs_per_minute: { name: "Runs that begin in a minute", say: count },
  concurrent_runs: { name: "Runs that are not over", say: count },
  stored_bytes: { name: "Events in the log", say: bytes },
} as const;
type QuotaKind = keyof typeof kinds;
const allKinds = Object.keys(kinds) as QuotaKind[];

const readMs = 10_000;

/** The id of the environment that is shown, whose name may stand in the address. */
export function shownEnvironment(): string {
  const { environment } = address.value;
  const known = environments.value.find(({ id, name }) => id === environment || name === environment);
  return known?.id ?? viewer.value?.environment_id ?? environment;
}

export function QuotasPage() {
  const environment = shownEnvironment();
  const path = `/api/v1/environments/${encodeURIComponent(environment)}/quotas`;
  const quotas = useLoaded((signal) => rest<{ quotas: QuotaData[] }>(path, { signal }), [path]);
  const retention = useLoaded((signal) => rest<RetentionData>("/api/v1/retention", { signal }), []);
  const [asked, setAsked] = useState<"quotas" | "retention">();
  const close = () => setAsked(undefined);
  useFollowed(quotas.reload, { list: "quotas", everyMs: readMs });
  useChanged("retention", retention.reload);
  const found = quotas.value?.quotas;
  return (
    <Page
      title="Quotas and retention"
      about="What this environment may use, and how long it keeps what it has"
    >
      <Section
        title="Quotas"
        aside={
          may("secrets:manage") &&
          found && <Button icon="edit" text="Set limits…" onClick={() => setAsked("quotas")} />
        }
      >
        {quotas.error !== undefined && <Failure error={quotas.error} onRetry={quotas.reload} />}
        {found && <QuotaTable of={found} />}
      </Section>
      <Section
        title="Retention"
        aside={
          may("secrets:manage") &&
          retention.value && <Button icon="edit" text="Set days…" onClick={() => setAsked("retention")} />
        }
      >
        {retention.error !== undefined && <Failure error={retention.error} onRetry={retention.reload} />}
        {retention.value && <Retention of={retention.value} />}
      </Section>
      <AttributesSection />
      {asked === "quotas" && found && (
        <QuotaDialog path={path} found={found} onDone={quotas.reload} onClose={close} />
      )}
      {asked === "retention" && retention.value && (
        <RetentionDialog found={retention.value} onDone={retention.reload} onClose={close} />
      )}
    </Page>
  );
}

function QuotaTable({ of }: { of: readonly QuotaData[] }) {
  const said = (kind: QuotaKind, limit: number | undefined) =>
    limit === undefined ? <span class="faint">none</span> : kinds[kind].say(limit);
  const quotaOf = (kind: QuotaKind) => of.find(({ quota }) => quota === kind);
  return (
    <Table
      rows={allKinds}
      keyOf={(kind) => kind}
      columns={[
        { name: "Quota", of: (kind) => kinds[kind].name },
        { name: "Used", of: (kind) => <Use quota={quotaOf(kind)} kind={kind} /> },
        { name: "Own limit", isNumber: true, of: (kind) => said(kind, quotaOf(kind)?.own_limit) },
        {
          name: "The platform's limit",
          isNumber: true,
          of: (kind) => said(kind, quotaOf(kind)?.platform_limit),
        },
      ]}
    />
  );
}

/** How much of a limit must be used before it is shown as near. */
const nearShare = 0.8;

function Use({ quota, kind }: { quota: QuotaData | undefined; kind: QuotaKind }) {
  if (!quota) return <span class="faint">not limited</span>;
  const { used, limit } = quota;
  const share = limit === 0 ? 1 : Math.min(1, used / limit);
  const tone = share >= 1 ? "bad" : share >= nearShare ? "warn" : "good";
  const { say } = kinds[kind];
  return (
    <>
      <span class="number">{`${say(used)} of ${say(limit)}`}</span>
      <span class="progress" aria-hidden="true">
        <span class={`progress-part ${tone}`} style={{ width: `${share * 100}%` }} />
      </span>
    </>
  );
}

function QuotaDialog(props: ChangeEnds & { path: string; found: readonly QuotaData[] }) {
  const { path, found, ...ends } = props;
  const [typed, setTyped] = useState<Record<string, string>>(() =>
    Object.fromEntries(found.map(({ quota, own_limit }) => [quota, `${own_limit ?? ""}`])),
  );
  const submit = async () => {
    const limits = allKinds.map((kind) => [kind, typed[kind] ? Number(typed[kind]) : null] as const);
    await rest(path, { method: "PUT", body: Object.fromEntries(limits) });
    return "Limits set";
  };
  return (
    <FormDialog title="Set limits" submit="Set" onSubmit={submit} {...ends}>
      <p>What the environment allows itself; the platform's limits stand, whatever is set here.</p>
      {allKinds.map((kind) => (
        <Field
          key={kind}
          label={kind === "stored_bytes" ? `${kinds[kind].name}, in bytes` : kinds[kind].name}
          type="number"
          value={typed[kind] ?? ""}
          onInput={(value) => setTyped({ ...typed, [kind]: value })}
          hint="Empty: no limit."
        />
      ))}
    </FormDialog>
  );
}

const daysOf = (days: number): string => (days === 0 ? "without end" : counted(days, "day"));

const Retention = ({ of }: { of: RetentionData }) => (
  <Facts
    of={[
      ["Events", daysOf(of.event_days)],
      ["Runs", daysOf(of.run_days)],
      ["Set here", of.own_days === null ? "as the installation says" : daysOf(of.own_days)],
      ["Expired below position", count(of.retention_floor)],
    ]}
  />
);

function RetentionDialog({ found, ...ends }: ChangeEnds & { found: RetentionData }) {
  const [{ days }, field] = useFields({ days: `${found.own_days ?? ""}` });
  const submit = async () => {
    await rest("/api/v1/retention", { method: "PUT", body: { days: days === "" ? null : Number(days) } });
    return "Retention set";
  };
  return (
    <FormDialog title="How long is it kept?" submit="Set" isDangerous onSubmit={submit} {...ends}>
      <p>Events and runs that are older are deleted, and cannot be brought back.</p>
      <Field
        label="Days"
        type="number"
        {...field("days")}
        hint="0: without end. Empty: as the installation says."
      />
    </FormDialog>
  );
}
