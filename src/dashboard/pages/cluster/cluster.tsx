import type { Static } from "@sinclair/typebox";
import type { Health } from "../../../domain/cluster/nodes/wire.ts";
import { rest } from "../../lib/api.ts";
import { bytes, count, counted, dateTime, duration, instantOf } from "../../lib/format.ts";
import { useLoaded, useNet, useTick } from "../../lib/hooks.ts";
import { may, viewer } from "../../lib/session.ts";
import { Button, Empty, Facts, Failure, Page, Section, Text, When } from "../../ui/basics.tsx";
import { type ChangeEnds, Choice, Field, FormDialog, Opener, useFields } from "../../ui/dialog.tsx";
import { Status } from "../../ui/status.tsx";
import { Table } from "../../ui/table.tsx";

/** Secrets of the installation that people rotate, and what each is for. */
const rotatedKinds = [
  ["jwt_secret", "Sessions of tenants' users"],
  ["platform_jwt_secret", "Sessions of the platform's users"],
  ["signing_key", "Signatures of what the server sends"],
  ["master_key", "Master key"],
] as const;

const secretBytes = 32;

const madeUp = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(secretBytes)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");

/** Replaces a secret of the installation on every node. */
function RotateDialog(ends: ChangeEnds) {
  const [{ kind, value }, field] = useFields({ kind: "jwt_secret", value: "" });
  const submit = async () => {
    const body = { kind, new_value: value };
    const answer = await rest<{ confirmed_nodes: string[] }>("/api/v1/cluster/rotate-token", { body });
    return `Rotated; ${counted(answer.confirmed_nodes.length, "node")} already on it`;
  };
  return (
    <FormDialog
      title="Rotate a secret of the installation"
      submit="Rotate"
      isDangerous
      onSubmit={submit}
      {...ends}
    >
      <p>Every node uses the new one from now on. What the old one signed stays good for a day.</p>
      <Choice label="Secret" {...field("kind")} options={rotatedKinds} />
      <Field
        label="New value"
        type="password"
        autoComplete="new-password"
        isRequired
        {...field("value")}
        hint="It is never shown again."
      />
      <div>
        <Button onClick={() => field("value").onInput(madeUp())}>Make one up</Button>
      </div>
    </FormDialog>
  );
}

type NodeData = ClusterData["nodes"][number];

type RotatedData = NonNullable<ClusterData["secrets"]>[number];

type ClusterData = Static<typeof Health>;

const readMs = 5_000;
/** A loop that has been still for longer than this is shown as late; the slowest begins every ten minutes. */
const loopStillMs = 15 * 60_000;

export function ClusterPage() {
  const { value, error, reload } = useLoaded(
    (signal) => rest<ClusterData>("/api/v1/cluster/health", { signal }),
    [],
  );
  useNet(reload, readMs);
  const mayRotate = viewer.value?.kind === "platform" && may("platform:keys:manage");
  return (
    <Page
      title={
        <>
          Cluster
          {value && <Status of={value.status} />}
        </>
      }
      about="As the node that answers sees it"
      actions={
        mayRotate && (
          <Opener text="Rotate a secret…">
            {(onClose) => <RotateDialog onDone={reload} onClose={onClose} />}
          </Opener>
        )
      }
    >
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {!value && error === undefined && <p class="faint">Reading…</p>}
      {value && <ClusterInside of={value} />}
    </Page>
  );
}

function ClusterInside({ of }: { of: ClusterData }) {
  const { issues, mode, nodes, leaders, database, bus } = of;
  const isDetailed = nodes.some(({ id }) => id !== undefined);
  return (
    <>
      {issues.map((issue) => (
        <Text key={issue} of={issue} in="p" class="issue" />
      ))}
      <Facts
        of={[
          ["Mode", mode],
          ["Nodes", count(nodes.length)],
          ["Database", `${database.engine}, ${database.status}, ${duration(database.round_trip_ms)}`],
          ["Bus", `${bus.kind}, ${bus.status}`],
        ]}
      />
      {isDetailed ? (
        <>
          <Section title="Nodes">
            <Nodes of={nodes} answering={of.node_id} leaders={leaders ?? []} />
          </Section>
          <Section title="Leaders">
            <Leaders of={leaders ?? []} />
          </Section>
          <Section title="Secrets">
            <Secrets of={of.secrets ?? []} />
          </Section>
          <Section title="Loops">
            <Loops of={nodes} />
          </Section>
        </>
      ) : (
        <Section title="Nodes">
          <ul class="plain-list">
            {nodes.map(({ status }, index) => (
              <li key={index}>
                <span class="grows">{`Node ${index + 1}`}</span>
                <Status of={status} />
              </li>
            ))}
          </ul>
          <p class="hint">Admins of the installation see each node.</p>
        </Section>
      )}
    </>
  );
}

const off = (ms: number | undefined, uncertainty: number | undefined): string =>
  ms === undefined ? "–" : `${ms > 0 ? "+" : ""}${count(ms)} ± ${uncertainty ?? 0} ms`;

function Nodes(props: {
  of: readonly NodeData[];
  answering: string | undefined;
  leaders: NonNullable<ClusterData["leaders"]>;
}) {
  const { of, answering, leaders } = props;
  const ledBy = (id: string | undefined) => leaders.filter(({ node_id }) => node_id === id).length;
  return (
    <Table
      rows={of}
      label="Nodes"
      keyOf={({ id }, index) => id ?? `${index}`}
      columns={[
        {
          name: "Node",
          of: ({ id = "", url = "" }) => (
            <>
              <Text of={id} in="code" />
              {id === answering && <span class="tag">answers</span>}
              <Text of={url} in="span" class="under" />
            </>
          ),
        },
        {
          name: "Status",
          of: ({ status, bus_connected }) => (
            <>
              <Status of={status} />
              {bus_connected === false && <span class="under warn">no bus</span>}
            </>
          ),
        },
        { name: "Version", of: ({ version = "" }) => <Text of={version} /> },
        { name: "Leads", isNumber: true, of: ({ id }) => count(ledBy(id)) },
        {
          name: "Clock",
          isNumber: true,
          of: ({ clock_offset_ms, clock_uncertainty_ms }) => off(clock_offset_ms, clock_uncertainty_ms),
        },
        {
          name: "CPU",
          isNumber: true,
          of: ({ cpu_percent }) => (cpu_percent === undefined ? "–" : `${Math.round(cpu_percent)} %`),
        },
        {
          name: "Memory",
          isNumber: true,
          of: ({ memory_bytes }) => (memory_bytes === undefined ? "–" : bytes(memory_bytes)),
        },
        { name: "Heartbeat", isNumber: true, of: ({ last_heartbeat }) => <When at={last_heartbeat} /> },
        { name: "Up since", isNumber: true, of: ({ started_at }) => <When at={started_at} /> },
      ]}
    />
  );
}

const Leaders = ({ of }: { of: NonNullable<ClusterData["leaders"]> }) =>
  of.length === 0 ? (
    <Empty title="No duty has a leader" />
  ) : (
    <Table
      rows={of}
      label="Leaders"
      keyOf={({ duty }) => duty}
      columns={[
        { name: "Duty", of: ({ duty }) => duty },
        { name: "Node", of: ({ node_id }) => <Text of={node_id} in="code" /> },
        { name: "Epoch", isNumber: true, of: ({ epoch }) => count(epoch) },
        {
          name: "Lease ends",
          isNumber: true,
          of: ({ lease_expires_at }) => dateTime(instantOf(lease_expires_at) ?? 0),
        },
      ]}
    />
  );

const secretNames = new Map<string, string>([...rotatedKinds, ["audit_key", "The chain of the audit"]]);

/** Those of the whole installation, which are rotated while it runs. */
const Secrets = ({ of }: { of: readonly RotatedData[] }) => (
  <Table
    rows={of}
    label="Secrets"
    keyOf={({ kind }) => kind}
    columns={[
      { name: "Secret", of: ({ kind }) => secretNames.get(kind) ?? kind },
      { name: "Version", isNumber: true, of: ({ version }) => count(version) },
      { name: "Rotated", isNumber: true, of: ({ rotated_at }) => <When at={rotated_at} /> },
      {
        name: "Previous valid until",
        isNumber: true,
        of: ({ previous_until }) => (previous_until ? dateTime(instantOf(previous_until) ?? 0) : "–"),
      },
    ]}
  />
);

/** Each loop with its slowest node. */
function Loops({ of }: { of: readonly NodeData[] }) {
  const now = useTick(5_000, true);
  const loops = new Map<
    string,
    { name: string; nodes: number; failures: number; oldest: number | undefined }
  >();
  for (const { loops: own = [] } of of)
    for (const { name, last_progress, failures } of own) {
      const known = loops.get(name) ?? { name, nodes: 0, failures: 0, oldest: undefined };
      const at = instantOf(last_progress ?? undefined);
      known.nodes++;
      known.failures = Math.max(known.failures, failures);
      if (at !== undefined) known.oldest = Math.min(known.oldest ?? at, at);
      loops.set(name, known);
    }
  const rows = [...loops.values()].sort(
    (one, other) => other.failures - one.failures || (one.oldest ?? Infinity) - (other.oldest ?? Infinity),
  );
  return (
    <Table
      rows={rows}
      label="Loops"
      keyOf={({ name }) => name}
      columns={[
        { name: "Loop", of: ({ name }) => name },
        {
          name: "State",
          of: ({ failures, oldest }) => {
            if (failures > 0) return <Status of="failing" />;
            if (oldest === undefined) return <Status of="pending" />;
            return <Status of={now - oldest > loopStillMs ? "late" : "moving"} />;
          },
        },
        { name: "Nodes", isNumber: true, of: ({ nodes }) => count(nodes) },
        { name: "Failed in a row", isNumber: true, of: ({ failures }) => count(failures) },
        { name: "Last progress", isNumber: true, of: ({ oldest }) => <When at={oldest} /> },
      ]}
    />
  );
}
