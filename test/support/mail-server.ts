import { createServer, type Socket } from "node:net";
import { SMTPServer } from "smtp-server";

/** A real SMTP server; `refuses` answers 550 for addresses that it matches. */
export async function startMailServer({ refuses = /^refused@/ } = {}) {
  const mails: { to: string[]; text: string }[] = [];
  const server = new SMTPServer({
    ...{ authOptional: true, disabledCommands: ["STARTTLS"], logger: false },
    onRcptTo({ address }, _session, done) {
      done(
        refuses.test(address) ? Object.assign(new Error("no such box"), { responseCode: 550 }) : undefined,
      );
    },
    onData(stream, session, done) {
      const pieces: Buffer[] = [];
      stream.on("data", (piece: Buffer) => pieces.push(piece));
      stream.on("end", () => {
        const to = session.envelope.rcptTo.map(({ address }) => address);
        mails.push({ to, text: Buffer.concat(pieces).toString() });
        done();
      });
    },
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.server.address() as { port: number };
  return {
    mails,
    url: `smtp://127.0.0.1:${port}`,
    stop: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

/** Takes connections, and says nothing. */
export async function startSilentServer() {
  const sockets = new Set<Socket>();
  let taken = 0;
  const server = createServer((socket) => {
    taken++;
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    // Without a reader the end of a connection is not noticed.
    socket.resume();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  return {
    url: `smtp://127.0.0.1:${port}`,
    /** Connections so far, and those that are open. */
    counts: () => ({ taken, open: sockets.size }),
    stop() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}
