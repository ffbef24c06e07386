/* The preconditioner of one steady Euler flow on a CPU, that of solvers/euler_lines.py, which explains it.

   Blocks are 4 x 4, their 16 entries a row of lanes apart: (I, 16, J) by rows of nodes, (J, 16, I) by columns.
   Factors are kept in float32, which halves what a solution reads; arithmetic is float64. */

#define ROUNDED 0.1 /* as in euler_lines.py */

static inline double rounded(double value, double width) {
    const double size = fabs(value);
    return size < width ? 0.5 * (size * size / width + width) : size;
}

/* (A(q_l) + |A|) / 2 and (A(q_r) - |A|) / 2 of a face, entries `gap` apart. Returns its spectral radius. */
static inline double face(vec l, vec r, pair normal, double *left, double *right, whole gap) {
    const double nx = normal.x, ny = normal.y;
    const double rho = 0.5 * (l.one + r.one), u = 0.5 * (l.two + r.two), v = 0.5 * (l.three + r.three);
    const double p = 0.5 * (l.four + r.four), through = nx * u + ny * v, sound = sqrt(GAMMA * p / rho);
    const double area = larger(sqrt(nx * nx + ny * ny), TINY), a = sound * area;
    const double still = rounded(through, ROUNDED * a), up = rounded(through + a, ROUNDED * a);
    const double down = rounded(through - a, ROUNDED * a);
    const double odd = 0.5 * (up - down) / a, even = 0.5 * (up + down) - still;
    const double by_pressure = even / sound / sound, by_speed = even / area / area;
    const double h = enthalpy((vec){rho, u, v, p}), g = GAMMA - 1;
    const double carry[4] = {1, u, v, h}, push[4] = {0, nx, ny, through}, speed[4] = {-through, nx, ny, 0};
    const double pressure[4] = {g * 0.5 * (u * u + v * v), -g * u, -g * v, g};
    const vec side[2] = {l, r};
    double *out[2] = {left, right};
    for (int which = 0; which < 2; which++) {
        const vec s = side[which];
        const double flow = nx * s.two + ny * s.three, sign = which ? -1 : 1;
        const double carry_s[4] = {1, s.two, s.three, enthalpy(s)}, push_s[4] = {0, nx, ny, flow};
        const double speed_s[4] = {-flow, nx, ny, 0};
        const double pressure_s[4] = {g * 0.5 * (s.two * s.two + s.three * s.three), -g * s.two, -g * s.three, g};
        for (int row = 0; row < 4; row++)
            for (int b = 0; b < 4; b++) {
                const double by_carry = odd * speed[b] + by_pressure * pressure[b];
                const double by_push = odd * pressure[b] + by_speed * speed[b];
                const double size = carry[row] * by_carry + push[row] * by_push + (row == b ? still : 0);
                const double own = carry_s[row] * speed_s[b] + push_s[row] * pressure_s[b] + (row == b ? flow : 0);
                out[which][(4 * row + b) * gap] = 0.5 * (own + sign * size);
            }
    }
    return fabs(through) + a;
}

/* Blocks of all faces and nodes at r->q; r->time is S / CFL. */
static void assemble(const mesh *m, const room *r, double cfl) {
    const whole I = m->rows, J = m->columns, n = I * J, plane_i = n - J, plane_j = n - I;
    double *spare = r->line, *none = spare + 16 * J, *diagonal = r->diagonal, *time = r->time;
    memset(diagonal, 0, 16 * (size_t)n * sizeof(double));
    memset(time, 0, (size_t)n * sizeof(double));
    for (whole i = 0; i < I; i++) {
        const double *q = r->q + i * J, *normal = m->normal_i + i * J;
        double *mine = diagonal + 16 * J * i, *next = mine + 16 * J, *radius = time + i * J;
        double *left = r->left_i + 16 * J * i, *right = r->right_i + 16 * J * i;
        if (i < I - 1) {
#pragma omp simd
            for (whole j = 0; j < J; j++) {
                const pair through = load2(normal + j, plane_i);
                spare[j] = face(load(q + j, n), load(q + J + j, n), through, left + j, right + j, J);
            }
            for (whole j = 0; j < J; j++) radius[j] += spare[j], radius[J + j] += spare[j];
            for (whole k = 0; k < 16 * J; k++) mine[k] += left[k], next[k] -= right[k];
        }
        normal = m->normal_j + i * (J - 1), left = r->left_j + 16 * J * i, right = r->right_j + 16 * J * i;
#pragma omp simd
        for (whole j = 0; j < J - 1; j++) {
            const pair through = load2(normal + j, plane_j);
            spare[j] = face(load(q + j, n), load(q + j + 1, n), through, left + j, right + j, J);
        }
        for (whole j = 0; j < J - 1; j++) radius[j] += spare[j];
        for (whole j = 0; j < J - 1; j++) radius[j + 1] += spare[j];
        for (whole k = 0; k < 16; k++) {
            for (whole j = 0; j < J - 1; j++) mine[k * J + j] += left[k * J + j];
            for (whole j = 0; j < J - 1; j++) mine[k * J + j + 1] -= right[k * J + j];
        }
        if (i == 0 || i == I - 1) {
            const double *rim = i == 0 ? m->start : m->end;
#pragma omp simd
            for (whole j = 0; j < J; j++) {
                const vec here = load(q + j, n);
                face(here, here, load2(rim + j, J), spare + j, none + j, J);
            }
            for (whole k = 0; k < 16 * J; k++) mine[k] += spare[k];
        }
        const vec top = load(q + J - 1, n), low = load(q, n);
        const pair body = load2(m->body + i, I);
        face(top, top, load2(m->outer + i, I), spare, none, 1);
        for (whole k = 0; k < 16; k++) mine[k * J + J - 1] += spare[k];
        if (m->wall) { /* its flux is p (0, n_x, n_y, 0) */
            const double g = GAMMA - 1, kinetic = 0.5 * (low.two * low.two + low.three * low.three);
            const double pressure[4] = {g * kinetic, -g * low.two, -g * low.three, g};
            for (whole k = 0; k < 4; k++) {
                mine[(4 + k) * J] += body.x * pressure[k];
                mine[(8 + k) * J] += body.y * pressure[k];
            }
        } else {
            face(low, low, body, spare, none, 1);
            for (whole k = 0; k < 16; k++) mine[k * J] += spare[k];
        }
    }
    join(m, time, 1);
    for (whole k = 0; k < n; k++) time[k] *= 0.5 / cfl;
    for (whole i = 0; m->wake && i <= m->wake; i++)
        for (whole k = 0; k < 16; k++) {
            double *one = diagonal + (16 * i + k) * J, *other = diagonal + (16 * (I - 1 - i) + k) * J;
            *one = *other = *one + *other;
        }
    for (whole i = 0; i < I; i++)
        for (whole k = 0; k < 4; k++)
            for (whole j = 0; j < J; j++) diagonal[(16 * i + 5 * k) * J + j] += time[i * J + j];
    for (whole k = 0; k < 16 * n; k++) r->kept[k] = (float)diagonal[k];
}

/* out = a b */
static void product(const double *a, const double *b, double *out, whole n) {
    for (whole row = 0; row < 4; row++)
        for (whole column = 0; column < 4; column++)
#pragma omp simd
            for (whole k = 0; k < n; k++) {
                const vec one = load(a + 4 * row * n + k, n), two = load(b + column * n + k, 4 * n);
                const double first = one.one * two.one + one.two * two.two;
                out[(4 * row + column) * n + k] = first + one.three * two.three + one.four * two.four;
            }
}

static inline vec scaled(double by, double one, double two, double three, double four) {
    return (vec){by * one, by * two, by * three, by * four};
}

/* The inverse from 2 x 2 minors, without pivots: s of the rows w and x, c of y and z. */
static void invert(const double *a, double *out, whole n) {
#pragma omp simd
    for (whole k = 0; k < n; k++) {
        const vec w = load(a + k, n), x = load(a + 4 * n + k, n), y = load(a + 8 * n + k, n);
        const vec z = load(a + 12 * n + k, n);
        const double s0 = w.one * x.two - x.one * w.two, s1 = w.one * x.three - x.one * w.three;
        const double s2 = w.one * x.four - x.one * w.four, s3 = w.two * x.three - x.two * w.three;
        const double s4 = w.two * x.four - x.two * w.four, s5 = w.three * x.four - x.three * w.four;
        const double c0 = y.one * z.two - z.one * y.two, c1 = y.one * z.three - z.one * y.three;
        const double c2 = y.one * z.four - z.one * y.four, c3 = y.two * z.three - z.two * y.three;
        const double c4 = y.two * z.four - z.two * y.four, c5 = y.three * z.four - z.three * y.four;
        const double by = 1 / (s0 * c5 - s1 * c4 + s2 * c3 + s3 * c2 - s4 * c1 + s5 * c0);
        const vec one = scaled(
            by, x.two * c5 - x.three * c4 + x.four * c3, w.three * c4 - w.two * c5 - w.four * c3,
            z.two * s5 - z.three * s4 + z.four * s3, y.three * s4 - y.two * s5 - y.four * s3);
        const vec two = scaled(
            by, x.three * c2 - x.one * c5 - x.four * c1, w.one * c5 - w.three * c2 + w.four * c1,
            z.three * s2 - z.one * s5 - z.four * s1, y.one * s5 - y.three * s2 + y.four * s1);
        const vec three = scaled(
            by, x.one * c4 - x.two * c2 + x.four * c0, w.two * c2 - w.one * c4 - w.four * c0,
            z.one * s4 - z.two * s2 + z.four * s0, y.two * s2 - y.one * s4 - y.four * s0);
        const vec four = scaled(
            by, x.two * c1 - x.one * c3 - x.three * c0, w.one * c3 - w.two * c1 + w.three * c0,
            z.two * s1 - z.one * s3 - z.three * s0, y.one * s3 - y.two * s1 + y.three * s0);
        store(out + k, n, one), store(out + 4 * n + k, n, two);
        store(out + 8 * n + k, n, three), store(out + 12 * n + k, n, four);
    }
}

static void shorten(const double *from, float *to, whole count) {
    for (whole k = 0; k < count; k++) to[k] = (float)from[k];
}

/* A block times a vector at one lane. */
static inline vec times(const float *b, whole n, vec v) {
    return (vec){
        b[0] * v.one + b[n] * v.two + b[2 * n] * v.three + b[3 * n] * v.four,
        b[4 * n] * v.one + b[5 * n] * v.two + b[6 * n] * v.three + b[7 * n] * v.four,
        b[8 * n] * v.one + b[9 * n] * v.two + b[10 * n] * v.three + b[11 * n] * v.four,
        b[12 * n] * v.one + b[13 * n] * v.two + b[14 * n] * v.three + b[15 * n] * v.four,
    };
}

/* y = b y, of n lanes; components of vectors are `gap` apart. */
static void multiply(const float *b, double *y, whole gap, whole n) {
#pragma omp simd
    for (whole k = 0; k < n; k++) store(y + k, gap, times(b + k, n, load(y + k, gap)));
}

/* y -= b x */
static void take(const float *b, const double *x, double *y, whole gap, whole n) {
#pragma omp simd
    for (whole k = 0; k < n; k++) {
        const vec old = load(y + k, gap), less = times(b + k, n, load(x + k, gap));
        const double one = old.one - less.one, two = old.two - less.two;
        store(y + k, gap, (vec){one, two, old.three - less.three, old.four - less.four});
    }
}

/* Factors of the lines along j, from the outer boundary to the body and the cut; lanes are i. */
static void factorise_j(const mesh *m, const room *r) {
    const whole I = m->rows, J = m->columns;
    double *pivot = r->line, *other = pivot + 16 * I, *inverse = other + 16 * I, *ahead = inverse + 16 * I;
    double *low = ahead + 16 * I, *up = low + 16 * I; /* low: coupling to j - 1, up: to j + 1 */
    for (whole j = J - 1; j >= 0; j--) {
        for (whole i = 0; i < I; i++)
            for (whole k = 0; k < 16; k++) {
                const whole at = (16 * i + k) * J + j;
                pivot[k * I + i] = r->diagonal[at];
                low[k * I + i] = j > 0 ? -r->left_j[at - 1] : 0;
                up[k * I + i] = j < J - 1 ? r->right_j[at] : 0;
            }
        if (j < J - 1) {
            product(up, ahead, other, I);
            for (whole k = 0; j == 0 && k < 16; k++)
                for (whole i = 0; m->wake && i <= m->wake; i++) {
                    double *one = other + k * I + i, *two = other + k * I + I - 1 - i;
                    *one = *two = *one + *two;
                }
            for (whole k = 0; k < 16 * I; k++) pivot[k] -= other[k];
        }
        if (j == 0) shorten(up, r->first, 16 * I);
        invert(pivot, inverse, I);
        shorten(inverse, r->inverse_j + 16 * I * j, 16 * I);
        product(inverse, up, other, I);
        shorten(other, r->up_j + 16 * I * j, 16 * I);
        product(inverse, low, ahead, I);
        shorten(ahead, r->low_j + 16 * I * j, 16 * I);
    }
}

/* Factors of the lines along i, from both ends to the middle; lanes are j. */
static void factorise_i(const mesh *m, const room *r) {
    const whole I = m->rows, J = m->columns, middle = I / 2;
    double *pivot = r->line, *other = pivot + 16 * J, *inverse = other + 16 * J, *ahead = inverse + 16 * J;
    double *end = ahead + 16 * J; /* the pivot in the middle */
    for (whole e = 0; e < m->wake; e++) /* an edge of the cut is stored twice: each copy couples for both */
        for (whole k = 0; k < 16; k++) {
            const whole one = (16 * e + k) * J, two = (16 * (I - 2 - e) + k) * J;
            const double forth = r->right_i[one] - r->left_i[two], back = r->right_i[two] - r->left_i[one];
            r->right_i[one] = forth, r->left_i[two] = -forth, r->right_i[two] = back, r->left_i[one] = -back;
        }
    for (whole half = 0; half < 2; half++)
        for (whole step = 0; step <= middle; step++) {
            const whole i = half ? I - 1 - step : step, row = 16 * J * i;
            const double *on = half ? r->left_i + row - 16 * J : r->right_i + row; /* couples to the middle's side */
            const double *off = half ? r->right_i + row : r->left_i + row - 16 * J; /* and to the end's */
            const double to_middle = half ? -1 : 1, to_end = half ? 1 : -1;
            if (step) product(off, ahead, other, J);
            if (i == middle) {
                for (whole k = 0; k < 16 * J; k++) {
                    r->middle[16 * J * half + k] = (float)(to_end * off[k]);
                    end[k] = (half ? end[k] : r->diagonal[row + k]) - to_end * other[k];
                }
                continue;
            }
            for (whole k = 0; k < 16 * J; k++) pivot[k] = r->diagonal[row + k] - (step ? to_end * other[k] : 0);
            invert(pivot, inverse, J);
            shorten(inverse, r->inverse_i + row, 16 * J);
            if (step) {
                product(inverse, off, other, J);
                for (whole k = 0; k < 16 * J; k++) r->away_i[row + k] = (float)(to_end * other[k]);
            }
            product(inverse, on, ahead, J);
            for (whole k = 0; k < 16 * J; k++) ahead[k] *= to_middle, r->toward_i[row + k] = (float)ahead[k];
        }
    invert(end, inverse, J);
    shorten(inverse, r->inverse_i + 16 * J * middle, 16 * J);
}

/* From rows (4, I, J) to columns (J, 4, I), or back. */
static void turn(const mesh *m, double *rows, double *columns, int back) {
    const whole I = m->rows, J = m->columns, tile = 8;
    for (whole c = 0; c < 4; c++)
        for (whole first = 0; first < I; first += tile)
            for (whole j = 0; j < J; j++)
                for (whole i = first; i < first + tile && i < I; i++) {
                    double *one = rows + (c * I + i) * J + j, *other = columns + (4 * j + c) * I + i;
                    *(back ? one : other) = *(back ? other : one);
                }
}

/* x becomes what the preconditioner makes of it, (4, I, J). */
static void precondition(const mesh *m, const room *r, double *x) {
    const whole I = m->rows, J = m->columns, n = I * J, middle = I / 2;
    double *t = r->by_column, *brought = r->line;
    turn(m, x, t, 0);
    for (whole j = J - 1; j > 0; j--) {
        multiply(r->inverse_j + 16 * I * j, t + 4 * I * j, I, I);
        if (j < J - 1) take(r->up_j + 16 * I * j, t + 4 * I * (j + 1), t + 4 * I * j, I, I);
    }
    memcpy(brought, t + 4 * I, 4 * (size_t)I * sizeof(double)); /* by both lines that meet in a node of the cut */
    multiply(r->first, brought, I, I);
    for (whole c = 0; c < 4; c++)
        for (whole i = 0; m->wake && i <= m->wake; i++) {
            double *one = brought + c * I + i, *other = brought + c * I + I - 1 - i;
            *one = *other = *one + *other;
        }
    for (whole k = 0; k < 4 * I; k++) t[k] -= brought[k];
    multiply(r->inverse_j, t, I, I);
    for (whole j = 1; j < J; j++) take(r->low_j + 16 * I * j, t + 4 * I * (j - 1), t + 4 * I * j, I, I);
    turn(m, x, t, 1);

    for (whole i = 0; i < I; i++) multiply(r->kept + 16 * J * i, x + J * i, n, J);
    for (whole half = 0; half < 2; half++)
        for (whole step = 0; step < middle; step++) {
            const whole i = half ? I - 1 - step : step;
            double *mine = x + J * i;
            multiply(r->inverse_i + 16 * J * i, mine, n, J);
            if (step) take(r->away_i + 16 * J * i, half ? mine + J : mine - J, mine, n, J);
        }
    double *mine = x + J * middle;
    take(r->middle, mine - J, mine, n, J);
    take(r->middle + 16 * J, mine + J, mine, n, J);
    multiply(r->inverse_i + 16 * J * middle, mine, n, J);
    for (whole half = 0; half < 2; half++)
        for (whole step = middle - 1; step >= 0; step--) {
            const whole i = half ? I - 1 - step : step;
            take(r->toward_i + 16 * J * i, x + J * (half ? i - 1 : i + 1), x + J * i, n, J);
        }
    join(m, x, 4);
    for (whole c = 0; c < 4; c++)
        for (whole i = 0; m->wake && i <= m->wake; i++) x[c * n + i * J] *= 0.5, x[c * n + (I - 1 - i) * J] *= 0.5;
}
