package elastic

import "time"

// ban keeps a slot or a host from being used.
type ban struct {
	failures int
	until    time.Duration
	forever  bool // until discovery withdraws the host
}

func (b *ban) holds(now time.Duration) bool { return b != nil && (b.forever || now < b.until) }

// fail counts a failure: min·2ⁿ⁻¹ + jitter·min, at most max, so that what failed together does not come
// back together.
func (b *ban) fail(now time.Duration, p Policy, jitter func() float64) {
	b.failures++
	if p.CooldownMin == 0 {
		b.forever = true
		return
	}
	delay := p.CooldownMin
	for i := 1; i < b.failures && delay < p.CooldownMax; i++ {
		delay *= 2
	}
	if jitter != nil {
		delay += time.Duration(jitter() * float64(p.CooldownMin))
	}
	b.until = now + min(delay, p.CooldownMax)
}
