/** The body of a request; undefined when it has more bytes. */
export async function readBody(request: Request, bytesMax: number): Promise<Uint8Array | undefined> {
  const announced = Number(request.headers.get("content-length") ?? 0);
  if (announced > bytesMax) return undefined;
  const body = new Uint8Array(await request.arrayBuffer());
  return body.length > bytesMax ? undefined : body;
}
