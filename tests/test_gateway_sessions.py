import time
from gateway_cases import *

async def test_x(smollm2):
    t=time.time()
    async with gateway(smollm2) as case:
        print("up", time.time()-t)
        client = case.client()
        t=time.time()
        r = await client.chat.completions.create(model=MODEL, messages=[system(), user("hi")], max_tokens=8)
        print(time.time()-t, r)
        print(case.text(case.sent()))
        s = await client.chat.completions.create(model=MODEL, messages=[system(), user("hi")], max_tokens=8, stream=True)
        async for c in s: print(c)
        await client.close()
        await case.settled()
        t=time.time()
    print("down", time.time()-t)
