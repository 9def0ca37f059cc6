import { useState } from "preact/hooks";
import {
  type AccessScope,
  accessScope,
  endOtherSessions,
  endOwnSession,
  endSession,
  linkIssuer,
  listOwnSessions,
  listSessions,
  listUsers,
  offeredIssuers,
  type SessionData,
} from "../../lib/access.ts";
import { type LoadedPages, useFollowed, useLoaded, usePages } from "../../lib/hooks.ts";
import { isAtHome, may, self } from "../../lib/session.ts";
import { Button, Section, Text, When } from "../../ui/basics.tsx";
import {
  type ChangeEnds,
  Choice,
  Confirm,
  type DialogEnds,
  FormDialog,
  Opener,
  useFields,
} from "../../ui/dialog.tsx";
import { type Column, ReadTable } from "../../ui/table.tsx";

/** Who is signed in, from where: the viewer's own sessions, and for an admin those of all. */
export function Sessions({ scope }: { scope: AccessScope }) {
  return (
    <>
      <OwnSessions />
      {may(scope.reads.users) && <SessionsOfAll scope={scope} />}
    </>
  );
}

function OwnSessions() {
  const [ended, setEnded] = useState<SessionData>();
  const [isEndingOthers, setEndingOthers] = useState(false);
  const read = usePages(listOwnSessions, []);
  useFollowed(read.reload, { list: may(accessScope().reads.users) ? "sessions" : "" });
  return (
    <Section
      title="Your sessions"
      aside={
        <>
          {(self.value?.kind === "user" || isAtHome()) && (
            <Opener text="Join a sign-in">
              {(onClose) => <LinkDialog org={self.value!.org_id} onClose={onClose} />}
            </Opener>
          )}
          {read.value?.some(({ is_current }) => !is_current) && (
            <Button onClick={() => setEndingOthers(true)}>End all others…</Button>
          )}
        </>
      }
    >
      <SessionTable label="Your sessions" read={read} onEnd={setEnded} />
      {ended && (
        <EndDialog
          act={() => endOwnSession(ended.id)}
          onDone={read.reload}
          onClose={() => setEnded(undefined)}
        />
      )}
      {isEndingOthers && (
        <Confirm
          title="End all your other sessions?"
          verb="End all others"
          act={endOtherSessions}
          done="Your other sessions ended"
          onDone={read.reload}
          onClose={() => setEndingOthers(false)}
        >
          <p>The people who use them have to sign in again. You stay signed in here.</p>
        </Confirm>
      )}
    </Section>
  );
}

function SessionsOfAll({ scope }: { scope: AccessScope }) {
  const [ended, setEnded] = useState<SessionData>();
  const read = usePages((cursor, signal) => listSessions(scope, cursor, signal), [scope.path]);
  const { value: users = [] } = useLoaded((signal) => listUsers(scope, signal), [scope.path]);
  useFollowed(read.reload, { list: "sessions" });
  const emails = new Map(users.map(({ id, email }) => [id, email]));
  const who: Column<SessionData> = {
    name: "User",
    of: ({ kind, subject_id }) => (
      <>
        <Text of={emails.get(subject_id) ?? subject_id} />
        {kind === "desktop" && <span class="under">made with this API key</span>}
      </>
    ),
  };
  const title = scope.isPlatform ? "Sessions of the platform" : "Sessions of the organization";
  return (
    <Section title={title}>
      <SessionTable
        label={title}
        read={read}
        before={who}
        {...(may(scope.manages.users) && { onEnd: setEnded })}
      />
      {ended && (
        <EndDialog
          act={() => endSession(scope, ended.id)}
          onDone={read.reload}
          onClose={() => setEnded(undefined)}
        />
      )}
    </Section>
  );
}

function SessionTable(props: {
  label: string;
  read: LoadedPages<SessionData>;
  before?: Column<SessionData>;
  onEnd?: (session: SessionData) => void;
}) {
  const { label, read, before, onEnd } = props;
  return (
    <ReadTable
      read={read}
      label={label}
      keyOf={({ id }) => id}
      columns={[
        ...(before ? [before] : []),
        {
          name: "From",
          of: ({ address = "", user_agent = "", is_current }) => (
            <>
              <Text of={address || "an unknown address"} />
              {is_current && <span class="tag">this one</span>}
              {user_agent && <Text of={user_agent} in="span" class="under" />}
            </>
          ),
        },
        { name: "Began", isNumber: true, of: ({ created_at }) => <When at={created_at} /> },
        { name: "Used", isNumber: true, of: ({ last_used_at }) => <When at={last_used_at} /> },
        {
          name: "",
          of: (session) =>
            onEnd &&
            !session.is_current && (
              <span class="row-actions">
                <Button icon="close" text="End…" onClick={() => onEnd(session)} />
              </span>
            ),
        },
      ]}
      empty="No sessions"
    />
  );
}

const EndDialog = (props: ChangeEnds & { act: () => Promise<void> }) => (
  <Confirm title="End the session?" verb="End the session" done="Session ended" {...props}>
    <p>Within a second no node believes it, and its open pages close.</p>
  </Confirm>
);

/** Joins a person of a provider to the viewer: from then on it may sign in by either. */
function LinkDialog({ org, onClose }: DialogEnds & { org: string }) {
  const { value: offered = [] } = useLoaded((signal) => offeredIssuers(org, signal), [org]);
  const [{ chosen }, field] = useFields({ chosen: "" });
  const id = chosen || offered[0]?.id;
  return (
    <FormDialog
      title="Join a sign-in"
      submit="Go to the provider"
      isDisabled={id === undefined}
      onSubmit={async () => location.assign(await linkIssuer(id!))}
      onClose={onClose}
    >
      {offered.length === 0 ? (
        <p>The organization has no issuer.</p>
      ) : (
        <Choice
          label="Issuer"
          {...field("chosen")}
          options={offered.map((one) => [one.id, one.name] as const)}
        />
      )}
    </FormDialog>
  );
}
