package standing

import "errors"

// Vanish ends a launcher's side as a kill does.
func Vanish(s *Stream) {
	s.cancel()
	s.Fail(errors.New("killed"))
	s.wg.Wait()
}
